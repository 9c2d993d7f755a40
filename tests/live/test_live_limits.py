"""Clients that are slow, send more than they may, or ask for what is not offered."""

import asyncio
import contextlib
import http.client
import json
import select
import socket

import pytest
from support.live_proxy import running
from support.upstream.sockets import OK, Request, SocketServer, answering, posted, soon
from support.waiting import PATIENCE_SECONDS

CHAT = "POST /v1/chat/completions"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


async def _refusal(client):
    """Status and code of an answer after which the connection ends, and its `connection` header."""
    status, headers, body = await client.answer()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await client.reader.read() == b""
    return status, json.loads(body)["error"]["code"], headers[b"connection"]


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    folder = tmp_path_factory.mktemp("impatient")
    with running(folder, SERVER__HEADER_TIMEOUT_SECONDS="0.3") as found:
        yield found


@pytest.mark.parametrize("whole", [True, False], ids=["one long line", "a line without end"])
async def test_a_head_that_is_too_long_is_a_431_and_the_end(whole, proxy, client):
    client.writer.write(b"GET /healthz HTTP/1.1\r\nx: " + b"v" * 200_000 + (b"\r\n\r\n" if whole else b""))
    assert await _refusal(client) == (431, "head_too_large", b"close")
    assert "server.max_header_bytes" in (await proxy.logged(event="request_refused", status=431))["problem"]


async def test_endless_headers_take_no_memory(start, connect):
    proxy = start()
    before = proxy.resident_bytes()
    async with connect(proxy) as client:
        client.writer.write(b"GET /healthz HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for number in range(2_000):
                client.writer.write(b"x-%d: %b\r\n" % (number, b"v" * 16_000))
                await client.writer.drain()
    loaded_after_the_start = 12_000_000
    assert proxy.resident_bytes(most=True) - before < loaded_after_the_start  # 32 MB were sent


async def test_a_head_that_comes_slowly_is_a_408(impatient, connect):
    async with connect(impatient) as client:
        client.writer.write(b"GET /healthz HT")
        assert await _refusal(client) == (408, "request_timeout", b"close")


async def test_a_body_that_comes_slowly_is_a_408_and_frees_the_upstream_if_it_is_passed_on(start, connect):
    left = asyncio.Event()

    async def script(connection):
        await connection.until_closed()
        left.set()

    proxy = start(SERVER__BODY_TIMEOUT_SECONDS="2")  # within which the upstream is connected
    async with SocketServer(script, proxy.upstream_port), connect(proxy) as chatting, connect(proxy) as uploading:
        chatting.ask(CHAT, None, "content-length: 100", "x-request-id: slow")
        chatting.writer.write(b"{")
        uploading.ask("POST /v1/files", None, "content-length: 100")
        uploading.writer.write(b"half")
        for client in (chatting, uploading):
            assert await _refusal(client) == (408, "request_timeout", b"close")
        await soon(left.wait())
    done = await proxy.logged(event="request_done", request_id="slow")
    assert (done["outcome"], done["status"]) == ("refused", 408)


@pytest.mark.parametrize(
    ("head", "flood", "status", "code"),
    [
        (f"{CHAT} HTTP/1.1\r\ntransfer-encoding: chunked", b"1\r\n \r\n" * 1_000_000, 400, "malformed_request"),
        ("POST /v1/files HTTP/1.1\r\ntransfer-encoding: chunked", b"no\r\n" * 1_000_000, 400, "malformed_request"),
        (f"{CHAT} HTTP/1.1\r\ncontent-length: 20000000", b" " * 20_000_000, 413, "body_too_large"),
        (f"{CHAT} HTTP/1.1\r\ntransfer-encoding: chunked", b"4\r\n    \r\n" * 1_000_000, 413, "body_too_large"),
        ("GET /healthz HTTP/1.1\r\nx: ", b"v" * 20_000_000, 431, "head_too_large"),
    ],
    ids=["tiny chunks", "no chunks", "too long", "too many chunks", "an endless head"],
)
def test_a_client_that_reads_only_after_all_it_sends_still_gets_its_refusal(head, flood, status, code, proxy):
    end = b"" if status == 431 else b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_SECONDS) as client:
        # Together: an upload whose head comes alone may be refused by the upstream before its body is.
        client.sendall((f"{head}\r\nhost: localhost".encode() + end if end else head.encode()) + flood)
        response = http.client.HTTPResponse(client)
        response.begin()
        assert (response.status, json.load(response)["error"]["code"]) == (status, code)


async def test_a_connection_without_requests_is_closed(impatient, connect):
    async with connect(impatient) as client, asyncio.timeout(PATIENCE_SECONDS):
        assert await client.reader.read() == b""


async def test_an_answered_request_whose_body_never_ends_does_not_hold_its_connection(proxy, connect):
    async with connect(proxy) as client:
        client.ask("GET /healthz", None, "content-length: 3")
        assert (await client.answer())[0] == 200
        client.writer.write(b"abc")
        client.ask("GET /healthz")
        assert (await client.answer())[0] == 200  # what came in between was that body


async def test_a_refusal_ends_a_connection_whose_client_still_waits_for_leave_to_send(client):
    client.ask(CHAT, None, "content-length: 1000001", "expect: 100-continue")
    status, _, body = await client.answer()
    assert (status, json.loads(body)["error"]["code"]) == (413, "body_too_large")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await client.reader.read() == b""


async def test_requests_sent_ahead_are_answered_in_turn(proxy, connect):
    async def script(connection):
        while True:
            request = await connection.request()
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + request.line[15:16])

    async with SocketServer(script, proxy.upstream_port), connect(proxy) as client:
        for number in range(5):
            client.ask(f"POST /v1/files/{number}", b"x" * 50_000)
        client.writer.write(b"GET /v1/models HTTP/1.1\r\nx: " + b"v" * 100_000 + b"\r\n\r\n")
        assert [(await client.answer())[2] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert await _refusal(client) == (431, "head_too_large", b"close")


async def test_a_connection_too_many_takes_the_place_of_the_longest_idle_or_is_a_503(start, connect):
    proxy, taken = start(SERVER__MAX_CONNECTIONS="2"), asyncio.Semaphore(0)

    async def script(connection):
        await connection.request()
        taken.release()
        await connection.until_closed()

    async with SocketServer(script, proxy.upstream_port), contextlib.AsyncExitStack() as stack:
        idle, *others = [await stack.enter_async_context(connect(proxy)) for _ in range(3)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await idle.reader.read() == b""
            for client in others:
                client.ask("POST /v1/files", b"x")
                await taken.acquire()
        one_more = await stack.enter_async_context(connect(proxy))
        assert await _refusal(one_more) == (503, "too_many_connections", b"close")


@pytest.mark.parametrize("line", [CHAT, "POST /v1/files"])
@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
async def test_an_upgrade_is_not_offered_and_the_request_is_served(line, protocol, proxy, connect):
    seen: list[Request] = []
    async with SocketServer(answering(OK, seen=seen), proxy.upstream_port), connect(proxy) as client:
        for _ in range(2):  # what is left of the first would be the second
            # As java.net.http.HttpClient sends it by default.
            client.ask(line, BODY, "Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAE")
            assert (await client.answer())[::2] == (200, b"ok")
    assert [request.body for request in posted(seen)] == [BODY, BODY]
    names = {name for request in seen for name, _ in request.headers}
    assert not names & {b"upgrade", b"http2-settings"}


async def test_a_client_that_still_sends_its_body_reads_why_it_is_refused(client):
    """Closing at once would reset the connection, and what it had received would be lost."""
    client.ask("POST /v1/files", None, "content-length: 9999", "connection: close")
    poll = select.poll()
    poll.register(client.writer.get_extra_info("socket"), select.POLLRDHUP)
    assert poll.poll(PATIENCE_SECONDS * 1000), "the proxy has ended its side"
    for _ in range(3):
        client.writer.write(bytes(1000))
    assert await _refusal(client) == (502, "upstream_unreachable", b"close")


async def test_a_request_that_comes_back_is_a_508_at_once(proxy, connect):
    """The upstream is a balancer that leads back to the proxy."""
    came: list[bytes] = []

    async def balance(connection):
        head = await connection.reader.readuntil(b"\r\n\r\n")
        came.append(head)
        async with connect(proxy) as client:
            client.writer.write(head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
            sending = asyncio.create_task(connection.reader.read(1 << 16))
            if b"content-length" in head:
                client.writer.write(await sending)
            await connection.send(await client.reader.read())
            sending.cancel()

    async with SocketServer(balance, proxy.upstream_port):
        for line in (CHAT, "POST /v1/files", "GET /v1/files"):
            came.clear()
            async with connect(proxy) as client:
                client.ask(line, None if line.startswith("GET") else BODY)
                status, _, body = await client.answer()
            assert (status, json.loads(body)["error"]["code"]) == (508, "loop_detected")
            assert len([head for head in came if head.startswith(line.encode())]) == 1


async def test_a_chain_of_proxies_is_no_loop(proxy, start, connect, seen):
    before = start(upstream_port=proxy.port)
    async with connect(before) as client:
        client.ask(CHAT, BODY)
        assert (await client.answer())[::2] == (200, b"ok")
    marks = posted(seen)[0].values(b"x-context-proxy-loop")
    assert len(set(marks)) == 2
