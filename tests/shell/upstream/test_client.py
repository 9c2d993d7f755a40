"""The upstream on real sockets: what goes out, what comes back, and how it ends when something goes wrong."""

import asyncio
import contextlib
import gzip
import inspect
import socket
import threading
import time
from unittest.mock import AsyncMock

import aiohttp
import pytest
from aiohttp import http_exceptions
from support.upstream.sockets import CHUNKED, LAST_CHUNK, OK, Request, SocketServer, answering, chunk, soon
from support.waiting import PATIENCE_SECONDS, let_pass, until

from proxy.config import UpstreamSettings
from proxy.errors import LoopDetected, ProxyError, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.shell.upstream import LOOP_HEADER, Outgoing, Upstream
from proxy.shell.upstream import connections as module

SECRET = "sk-canary-5f1e"


@contextlib.asynccontextmanager
async def opened(base_url, **seconds):
    upstream = Upstream(UpstreamSettings(base_url=base_url, **seconds))
    try:
        yield upstream
    finally:
        await upstream.aclose()


@contextlib.asynccontextmanager
async def talking():
    """An upstream whose server answers, and what that gets."""
    seen: list[Request] = []
    async with SocketServer(answering(OK, seen=seen)) as scripted, opened(scripted.base_url) as upstream:
        yield upstream, seen


async def body_of(answer):
    return b"".join([piece async for piece in answer.chunks()])


async def whole(answer):
    try:
        return await body_of(answer)
    finally:
        await answer.aclose()


async def post(upstream, body=b"{}", headers=()):
    sent = Outgoing(body) if isinstance(body, bytes) else body
    return await whole(await upstream.send("POST", b"/chat/completions", headers, sent))


# What goes out.


async def test_a_request_goes_out_as_it_came():
    headers = [(b"x-r", b"1"), (b"authorization", b"Bearer k"), (b"x-r", b"2"), (b"user-agent", b"me/1"), (b"te", b"x")]
    async with talking() as (upstream, seen):
        assert await post(upstream, b'{"a": 1}', [*headers, (b"content-length", b"999"), (b"host", b"proxy")]) == b"ok"
    (request,) = seen
    assert (request.line, request.body) == (b"POST /v1/chat/completions HTTP/1.1", b'{"a": 1}')
    own = [pair for pair in request.headers if pair[0] not in (b"host", b"content-length", LOOP_HEADER)]
    assert own == [pair for pair in headers if pair[0] != b"te"]
    assert request.values(b"content-length") == [b"8"]


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", b"{}"), ("DELETE", None), ("POST", b"")])
async def test_nothing_is_added_to_a_request_but_by_what_it_is_known_when_it_comes_back(method, body):
    async with talking() as (upstream, seen):
        await whole(await upstream.send(method, b"/x", [], None if body is None else Outgoing(body)))
        assert {name for name, _ in seen[0].headers} <= {b"host", b"content-length", LOOP_HEADER}
        with pytest.raises(LoopDetected, match="leads back to this proxy"):
            await upstream.send(method, b"/x", seen[0].headers, None if body is None else Outgoing(body))


@pytest.mark.parametrize(
    "target",
    [b"/a//b+c%2Fd?q=a+b%20c&x", b"/a/../b", b"/a/%2e%2e/b", b"/a|b?q='\"", b"/a?x=%zz&y=%c3%a9", "/é".encode()],
)
async def test_path_and_query_are_not_normalised_and_only_bytes_that_no_url_may_hold_escaped(target):
    async with talking() as (upstream, seen):
        await whole(await upstream.send("GET", target, [], None))
    assert seen[0].line == b"GET /v1" + target.replace("é".encode(), b"%C3%A9") + b" HTTP/1.1"


async def test_a_streamed_upload_keeps_its_length_when_it_was_announced():
    async with talking() as (upstream, seen):
        await post(upstream, pieces(), [(b"content-length", b"3")])
        await post(upstream, pieces())
    assert [request.body for request in seen] == [b"abc"] * 2
    assert seen[0].values(b"content-length") == [b"3"]
    assert seen[1].values(b"transfer-encoding") == [b"chunked"]


async def test_a_streamed_upload_is_taken_only_as_fast_as_the_upstream_reads():
    taken = 0

    async def pieces():
        nonlocal taken
        for _ in range(1_000):
            taken += 65_536
            yield b"z" * 65_536

    async def script(connection):
        connection.writer.transport.pause_reading()
        await asyncio.Event().wait()

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        sending = asyncio.create_task(post(upstream, pieces()))
        before = -1
        while taken != before:  # until two looks, with time for the sockets in between, find the same
            before = taken
            await asyncio.sleep(0.05)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert 0 < taken < 20_000_000


async def test_an_upload_goes_on_behind_the_beginning_of_its_response():
    begun, received = asyncio.Event(), list[bytes]()

    async def pieces():
        yield b"a"
        await begun.wait()
        for piece in (b"b", b"c"):
            yield piece

    async def script(connection):
        await connection.head()
        received.append(await connection.reader.readuntil(b"a\r\n"))
        await connection.send(CHUNKED + chunk(b"begun "))
        received.append(await connection.reader.readuntil(LAST_CHUNK))
        await connection.send(chunk(b"whole") + LAST_CHUNK)

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        response = await upstream.send("POST", b"/x", [], pieces())
        begun.set()
        assert await whole(response) == b"begun whole"
    assert b"".join(received) == chunk(b"a") + chunk(b"b") + chunk(b"c") + LAST_CHUNK


def through(monkeypatch, proxy):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)


async def test_the_environments_proxy_is_named_where_it_fails_without_its_password(monkeypatch):
    through(monkeypatch, f"http://user:{SECRET}@127.0.0.1:9")
    async with opened("http://model.invalid/v1") as upstream:
        with pytest.raises(UpstreamUnreachable, match="refused") as caught:
            await post(upstream)
    assert "the upstream http://model.invalid (through the environment's proxy 127.0.0.1:9)" in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    ("proxy", "password"), [("http://", []), ("", []), ("http://user:p%40ss@", [b"Basic dXNlcjpwQHNz"])]
)
async def test_the_environments_proxy_is_used_with_its_password_and_no_proxy_obeyed(proxy, password, monkeypatch):
    seen: list[Request] = []
    async with SocketServer(answering(OK, seen=seen)) as scripted:
        through(monkeypatch, f"{proxy}127.0.0.1:{scripted.port}")
        async with opened("http://model.invalid/v1") as upstream:
            for _ in range(2):  # the second on the same connection
                await post(upstream)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        async with opened(scripted.base_url) as upstream:
            await post(upstream)
    *proxied, direct = seen
    assert [one.line for one in proxied] == [b"POST http://model.invalid/v1/chat/completions HTTP/1.1"] * 2
    assert [one.values(b"proxy-authorization") for one in proxied] == [password] * 2
    assert (direct.line, direct.values(b"proxy-authorization")) == (b"POST /v1/chat/completions HTTP/1.1", [])


# What comes back.


async def test_repeated_headers_stay_and_no_cookie_is_kept():
    seen: list[Request] = []
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nConnection: x-hop\r\nX-Hop: 1\r\n"
    script = answering(answer + b"content-length: 0\r\n\r\n", seen=seen)
    async with (
        SocketServer(script) as scripted,
        opened(scripted.base_url.replace("127.0.0.1", "localhost")) as upstream,
    ):
        found = await upstream.send("GET", b"/x", [], None)
        await whole(found)
        await whole(await upstream.send("GET", b"/x", [], None))
    assert found.headers == [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"content-length", b"0")]
    assert seen[1].values(b"cookie") == []


HELLO = gzip.compress(b"hello")
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 500
MANY = [(b"x-long", b"v" * 60_000), *((b"x-%d" % number, b"v" * 50) for number in range(80))]
RESPONSES = {
    "compressed it passes as it is": (b"", 200, [(b"content-encoding", b"gzip")], HELLO),
    "a redirect is the client's to follow": (b"", 307, [(b"location", b"/else")], b""),
    "an interim one is passed over": (INTERIM, 200, [], b"ok"),
    "64 kilobytes of headers pass": (b"", 200, MANY, b""),
}


@pytest.mark.parametrize(("before", "status", "headers", "body"), RESPONSES.values(), ids=RESPONSES)
async def test_a_response_comes_as_it_is(before, status, headers, body):
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    head = b"HTTP/1.1 %d X\r\n" % status + b"".join(b"%b: %b\r\n" % pair for pair in headers)
    async with (
        SocketServer(answering(before + head + b"\r\n" + body)) as scripted,
        opened(scripted.base_url) as upstream,
    ):
        found = await upstream.send("POST", b"/x", [], Outgoing(b"{}"))
        assert (found.status, found.headers, await whole(found)) == (status, headers, body)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_server_that_hangs_up_at_once_gets_one_connection(method):
    async def hang_up(_):
        """End, which closes."""

    async with SocketServer(hang_up) as server, opened(server.base_url) as upstream:
        for sends in (1, 2):
            with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
                await upstream.send(method, b"/models", [], Outgoing(b"{}"))
            assert server.connections == sends


async def test_300_streams_run_at_once():
    async def script(connection):
        await connection.request()
        await connection.send(CHUNKED)
        await connection.until_closed()

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        answers = await asyncio.gather(*(upstream.send("POST", b"/x", [], Outgoing(b"{}")) for _ in range(300)))
        assert scripted.connections == 300
        for answer in answers:
            await answer.aclose()


async def test_a_slow_reader_holds_the_upstream_back_and_its_time_is_no_silence():
    sent = 0

    async def script(connection):
        nonlocal sent
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 80000000\r\n\r\n")
        for _ in range(1_000):
            await connection.send(b"w" * 80_000)
            sent += 80_000

    async with (
        SocketServer(script) as scripted,
        opened(scripted.base_url, idle_timeout_seconds=PATIENCE_SECONDS) as upstream,
    ):
        answer = await upstream.send("GET", b"/x", [], None)
        pieces = answer.chunks()
        await anext(pieces)
        before = -1
        while sent != before:  # as above
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 20_000_000
        let_pass(2 * PATIENCE_SECONDS)
        await asyncio.sleep(0.001)
        while before == sent:
            await anext(pieces)
        await pieces.aclose()
        await answer.aclose()


# Connections.


async def test_a_connection_is_used_again_after_a_whole_body():
    async with SocketServer(answering(OK)) as scripted, opened(scripted.base_url) as upstream:
        for _ in range(3):
            assert await post(upstream) == b"ok"
        assert scripted.connections == 1


async def test_a_connection_is_used_again_when_what_was_left_of_a_body_came_soon():
    ending = asyncio.Event()

    async def lingering(connection):
        for _ in range(2):
            await connection.request()
            await connection.send(CHUNKED + chunk(b"data: [DONE]\n\n"))
            await ending.wait()
            await connection.send(LAST_CHUNK)

    async with SocketServer(lingering) as scripted, opened(scripted.base_url) as upstream:
        answer = await upstream.send("POST", b"/chat/completions", [], Outgoing(b"{}"))
        reading = asyncio.create_task(body_of(answer))
        await asyncio.sleep(0)
        reading.cancel()  # as when a client leaves
        await asyncio.gather(reading, return_exceptions=True)
        asyncio.get_running_loop().call_soon(ending.set)
        await soon(answer.drain())
        await answer.aclose()
        assert await post(upstream) == b"data: [DONE]\n\n"
    assert scripted.connections == 1


@pytest.mark.parametrize("what", ["more than a little", "nothing", "a reset"])
async def test_what_is_left_of_a_body_is_not_read_for_long(what, monkeypatch):
    monkeypatch.setattr(
        "proxy.shell.upstream.responses._DRAIN_SECONDS", 0.01 if what == "nothing" else PATIENCE_SECONDS
    )
    closed = asyncio.Event()

    async def going_on(connection):
        await connection.request()
        await connection.send(CHUNKED + chunk(b"data: [DONE]\n\n"))
        if what == "a reset":
            connection.reset()
        with contextlib.suppress(ConnectionError):
            while what == "more than a little":
                await connection.send(chunk(b"x" * 10_000))
        await connection.until_closed()
        closed.set()

    async with SocketServer(going_on) as scripted, opened(scripted.base_url) as upstream:
        answer = await upstream.send("POST", b"/chat/completions", [], Outgoing(b"{}"))
        await soon(answer.drain())
        await answer.aclose()
        await soon(closed.wait())


async def test_a_connection_that_was_closed_while_the_loop_was_busy_is_not_used():
    async def script(connection):
        await connection.request()
        await connection.send(OK)

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        for _ in range(10):
            assert await post(upstream) == b"ok"
            time.sleep(0.005)  # noqa: ASYNC251 - a busy loop is what is tried
        assert scripted.connections == 10


@pytest.mark.parametrize("is_read", [False, True], ids=["still in the kernel", "already read"])
async def test_what_an_idle_connection_says_is_no_answer_to_the_next_request(is_read):
    says, said = asyncio.Event(), asyncio.Event()

    async def script(connection):
        await connection.request()
        await connection.send(OK)
        await says.wait()
        await connection.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        said.set()
        await connection.until_closed()

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        assert await post(upstream) == b"ok"
        (protocol,) = upstream._connector.handed_out
        says.set()
        await soon(said.wait())
        await until(lambda: protocol.should_close or not is_read)
        assert await post(upstream) == b"ok"
        assert scripted.connections == 2


@pytest.mark.parametrize(("method", "is_repeated"), [("GET", True), ("POST", False)])
async def test_only_what_may_be_repeated_is_sent_once_more_if_its_connection_closes(method, is_repeated):
    requests = []

    async def script(connection):
        for _ in range(2):
            requests.append(await connection.request())
            if len(requests) != 2:
                await connection.send(OK)

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        await whole(await upstream.send(method, b"/models", [], None))
        with contextlib.nullcontext() if is_repeated else pytest.raises(UpstreamUnreachable):
            assert await whole(await upstream.send(method, b"/models", [], None)) == b"ok"
    assert len(requests) == (3 if is_repeated else 2)


async def test_a_connection_whose_answer_came_before_its_request_was_taken_is_not_used_again():
    answered = asyncio.Event()

    async def script(connection):
        await connection.head()
        transport = connection.writer.transport
        transport.pause_reading()
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        await connection.send(OK)
        await answered.wait()
        transport.resume_reading()
        await connection.until_closed()

    body = b"z" * 12_000_000  # more than the sockets take by themselves
    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        for _ in range(2):
            assert await post(upstream, body) == b"ok"
        answered.set()
        assert scripted.connections == 2


@pytest.mark.parametrize("value", [b"Bearer k\r\nx-more: 1", b"Bearer k\n", b"\rk"])
async def test_a_header_of_several_lines_is_not_sent(value):
    async with talking() as (upstream, seen):
        with pytest.raises(UpstreamUnreachable):
            await post(upstream, headers=[(b"authorization", value)])
    assert seen == []


# What goes wrong.


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "head",
    [CHUNKED + b"2\r\nhi\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", b"HTTP/1.1 200 OK\r\n\r\nhi"],
    ids=["chunked", "length", "until-closed"],
)
async def test_an_answer_that_breaks_off_is_an_error_and_never_an_end(head, reset):
    seen = asyncio.Event()

    async def script(connection):
        await connection.request()
        await connection.send(head)
        await seen.wait()
        if reset:
            connection.reset()

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        answer = await upstream.send("POST", b"/x?key=" + SECRET.encode(), [], Outgoing(b"{}"))
        pieces = aiter(answer.chunks())
        assert await anext(pieces) == b"hi"
        seen.set()
        if b"length" not in head and b"chunked" not in head and not reset:
            with pytest.raises(StopAsyncIteration):  # this is how such an answer ends
                await anext(pieces)
        else:
            with pytest.raises(UpstreamUnreachable, match="broke off its response") as caught:
                await anext(pieces)
            assert SECRET not in caught.value.message
            assert "Error" not in caught.value.message
        await answer.aclose()


async def test_half_an_answer_without_a_length_is_not_whole_if_its_reset_comes_with_it():
    async def script(connection):
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        connection.reset()

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        with pytest.raises(UpstreamUnreachable):
            await post(upstream)


INVALID = "its response is not valid HTTP"


@pytest.mark.parametrize(
    "answer",
    [b"", b"SMTP ready\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad header " + SECRET.encode() + b"\r\n\r\n", b"HTTP/1.1 200"],
    ids=["nothing", "no http", "broken header", "half a line"],
)
async def test_no_answer_or_no_http_is_unreachable_and_quotes_nothing(answer):
    async def script(connection):
        await connection.request()
        await connection.send(answer)

    async with SocketServer(script) as scripted, opened(scripted.base_url) as upstream:
        with pytest.raises(UpstreamUnreachable, match=f"the upstream http://127.0.0.1:{scripted.port}") as caught:
            await upstream.send(
                "POST", b"/x?key=" + SECRET.encode(), [(b"authorization", SECRET.encode())], Outgoing(b"{}")
            )
    assert SECRET not in caught.value.message
    assert caught.value.message.endswith("it closed the connection" if answer in (b"", b"HTTP/1.1 200") else INVALID)


async def test_a_closed_port_and_a_name_that_does_not_exist_are_unreachable():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        for host, why in ((f"127.0.0.1:{port}", "Connection refused"), ("model.invalid", "invalid cannot be reached")):
            async with opened(f"http://{host}/v1") as upstream:
                with pytest.raises(UpstreamUnreachable, match=why) as caught:
                    await upstream.send("POST", b"/x?key=" + SECRET.encode(), [], Outgoing(b"{}"))
            assert SECRET not in caught.value.message


def resolving(monkeypatch, look_up):
    """A name whose look-up gives a port of this machine."""

    def found(*_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", look_up()))]

    monkeypatch.setattr(socket, "getaddrinfo", found)


async def test_a_name_that_moved_is_looked_up_again_when_its_address_takes_no_connection(monkeypatch):
    async with SocketServer(answering(OK)) as scripted:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            ports = iter([closed.getsockname()[1], scripted.port])
            resolving(monkeypatch, lambda: next(ports))
            async with opened("http://model.test/v1") as upstream:
                assert await post(upstream) == b"ok"


async def test_a_look_up_that_hangs_ends_and_the_next_request_begins_another(monkeypatch):
    hangs = threading.Event()

    def hang():
        hangs.wait(PATIENCE_SECONDS)
        return 0

    async with SocketServer(answering(OK)) as scripted:
        look_ups = iter([hang])
        resolving(monkeypatch, lambda: next(look_ups, lambda: scripted.port)())
        async with opened("http://model.test/v1") as upstream:
            with monkeypatch.context() as short:
                short.setattr("proxy.shell.upstream.connections._LOOK_UP_SECONDS", 0.05)
                with pytest.raises(UpstreamUnreachable, match=r"its name was not resolved within 0\.05 s"):
                    await post(upstream)
            assert await post(upstream) == b"ok"
            hangs.set()


async def test_plain_http_behind_https_is_unreachable():
    async def script(connection):
        await connection.reader.read(1)
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with SocketServer(script) as scripted, opened(scripted.base_url.replace("http:", "https:")) as upstream:
        with pytest.raises(UpstreamUnreachable):
            await post(upstream)


async def test_a_connection_that_is_not_taken_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        try:
            for one in waiting:  # they fill the queue of a listener that never accepts
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    one.connect(address)
            async with opened(f"http://127.0.0.1:{address[1]}/v1", connect_timeout_seconds=0.05) as upstream:
                with pytest.raises(UpstreamTimeout, match=r"no connection within 0\.05 s"):
                    await post(upstream)
        finally:
            for one in waiting:
                one.close()


async def test_the_wait_for_an_answer_begins_when_the_upload_is_done():
    async def pieces():
        for _ in range(3):
            let_pass(PATIENCE_SECONDS)
            await asyncio.sleep(0.001)
            yield b"abc"

    async with (
        SocketServer(answering(OK)) as scripted,
        opened(scripted.base_url, first_byte_timeout_seconds=PATIENCE_SECONDS) as upstream,
    ):
        assert await post(upstream, pieces()) == b"ok"


async def pieces():
    yield b"abc"


@pytest.mark.parametrize(
    ("begin", "body", "problem"),
    [
        (b"", b"{}", r"no response within 0\.05 s"),
        (b"", pieces(), r"no response within 0\.05 s"),
        (CHUNKED + chunk(b"hi"), b"{}", r"silent for 0\.05 s"),
    ],
    ids=["before the head", "after an upload", "in the middle"],
)
async def test_silence_is_a_timeout_and_closes_the_connection(begin, body, problem):
    closed = asyncio.Event()

    async def script(connection):
        await connection.request()
        await connection.send(begin)
        await connection.until_closed()
        closed.set()

    limits = {"first_byte_timeout_seconds": 0.05, "idle_timeout_seconds": 0.05}
    async with SocketServer(script) as scripted, opened(scripted.base_url, **limits) as upstream:
        with pytest.raises(UpstreamTimeout, match=problem):
            await post(upstream, body)
        await soon(closed.wait())


def _made(kind):
    """An exception of a class whose constructor is not known, with a secret in it."""
    found = kind.__new__(kind, SECRET)
    BaseException.__init__(found, SECRET)
    return found


def _errors_of_the_client():
    for place in (aiohttp, http_exceptions):
        for _, found in inspect.getmembers(place, inspect.isclass):
            of_requests = found.__name__ != "EofStream" and not found.__name__.startswith(("WS", "WebSocket"))
            if issubclass(found, Exception) and not issubclass(found, Warning) and of_requests:
                yield found
    yield from (OSError, ConnectionResetError, TimeoutError, ValueError)


@pytest.mark.parametrize("kind", sorted(set(_errors_of_the_client()), key=str))
async def test_every_error_of_the_client_library_becomes_one_of_ours(kind, monkeypatch):
    failing = AsyncMock(side_effect=_made(kind))
    monkeypatch.setattr(aiohttp.ClientSession, "_request", failing)
    async with SocketServer(answering(OK)) as scripted, opened(scripted.base_url) as upstream:
        with pytest.raises(UpstreamError) as caught:
            await upstream.send("POST", b"/x", [], Outgoing(b"{}"))
    assert failing.await_count == 1
    assert SECRET not in str(caught.value)
    assert isinstance(caught.value, ProxyError)


def test_local_upstreams_are_let_go_before_they_close():
    assert module.LOCAL_IDLE_SECONDS < 5 < module.HOSTED_IDLE_SECONDS < 60


async def test_a_body_is_let_go_of_once_it_is_written() -> None:
    note, writer = AsyncMock(), AsyncMock()
    body = Outgoing(b"long", note)
    await body.write_to(writer, b"head ")
    await body.write_to(writer)
    assert [given.args for given in writer.write.await_args_list] == [(b"head long",), (b"",)]
    assert (note.await_count, body.length) == (2, 4)
