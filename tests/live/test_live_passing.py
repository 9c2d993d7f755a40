"""Requests that pass through a running proxy byte for byte, and those it refuses itself."""

import asyncio
import gzip
import importlib
import json
import sys
import zlib
from typing import Any

import pytest
from support.upstream.sockets import CHUNKED, LAST_CHUNK, OK, Request, SocketServer, answering, chunk

zstd: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
brotli: Any = importlib.import_module("brotli")

CHAT = "POST /v1/chat/completions"
QUESTIONS = (b"GET /v1/models ", b"GET /v1/model ", b"GET /api/", b"POST /api/", b"GET /props", b"GET /info ")
"""How the proxy's own questions to a server begin."""
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "canary-content"}]}'
JSON_OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{"ok": true}'


def upstream(proxy, script):
    """On the port where this proxy looks for it; questions of the proxy's own are answered with a 404."""

    async def without_questions(connection):
        started = await connection.reader.readexactly(15)
        connection.reader._buffer[:0] = started  # type: ignore[attr-defined] # there is no way to look without taking
        if started.startswith(QUESTIONS):
            await connection.request()
            await connection.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            await script(connection)

    return SocketServer(without_questions, proxy.upstream_port)


@pytest.fixture
async def seen(proxy):
    """What comes to an upstream that answers in JSON, without questions of the proxy's own."""
    found = []
    async with upstream(proxy, answering(JSON_OK, seen=found)):
        yield found


async def test_each_event_reaches_the_client_before_the_next_is_sent(proxy, client):
    taken: asyncio.Queue[bytes] = asyncio.Queue()
    events = [b'data: {"n": %d, "odd": "\xff\\ud800"}\n\n' % number for number in range(5)] + [b"data: [DONE]\n\n"]

    async def script(connection):
        await connection.request()
        await connection.send(CHUNKED)
        for event in events:
            await connection.send(chunk(event))
            assert await taken.get() == event
        await connection.send(LAST_CHUNK)

    async with upstream(proxy, script):
        client.ask(CHAT, BODY)
        status, headers = await client.head()
        assert (status, dict(headers)[b"content-type"]) == (200, b"text/event-stream")
        for _ in events:
            taken.put_nowait(await client.chunk())
        assert await client.chunk() == b""


async def test_a_client_that_reads_nothing_holds_the_upstream_back_and_gets_it_all_later(proxy, client):
    events = 40_000
    sent = 0

    def event(number):
        return b'data: {"choices": [{"delta": {"content": "%07d%b"}}]}\n\n' % (number, b"x" * 1_900)

    async def script(connection):
        nonlocal sent
        await connection.request()
        await connection.send(CHUNKED)
        for number in range(events):
            await connection.send(chunk(event(number)))
            sent += 1
        await connection.send(LAST_CHUNK)

    async with upstream(proxy, script):
        client.ask(CHAT, BODY)
        await client.head()
        before = -1
        while sent != before:  # until the buffers are full
            before = sent
            await asyncio.sleep(0.2)
        assert sent < events - 1_000
        reported, rest = 0, b""
        while piece := await client.chunk():
            rest += piece
            while len(rest) >= len(event(reported)):  # each is dropped once it was compared: 80 MB in all
                assert rest.startswith(event(reported))
                rest = rest[len(event(reported)) :]
                reported += 1
    assert (reported, rest) == (events, b"")


@pytest.mark.parametrize("line", [CHAT, "POST /v1/files", "GET /v1/files"])
@pytest.mark.parametrize("status", [101, 600, 999])
async def test_a_status_that_no_request_asks_for_is_a_502(status, line, proxy, client):
    head = b"HTTP/1.1 %d Odd\r\nupgrade: h2c\r\nconnection: upgrade\r\n" % status
    async with upstream(proxy, answering(head + (b"\r\n" if status == 101 else b"content-length: 2\r\n\r\nok"))):
        client.ask(line, BODY)
        found, _, body = await client.answer()
        assert (found, json.loads(body)["error"]["code"]) == (502, "upstream_unreachable")
        assert f"status {status}" in json.loads(body)["error"]["message"]
        client.ask("GET /healthz")  # the connection lives
        assert (await client.answer())[0] == 200


@pytest.mark.parametrize("line", [CHAT, "GET /v1/files", "POST /v1/messages/batches"])
async def test_what_looks_like_a_header_of_ours_is_ours(line, proxy, client):
    forged = b"X-Context-Proxy-Tokens: before=1\r\nx-context-proxy-anything: 1\r\nx-request-id: up-1\r\n"
    async with upstream(proxy, answering(b"HTTP/1.1 200 OK\r\n" + forged + b"content-length: 2\r\n\r\nok")):
        client.ask(line, BODY, "x-request-id: mine-1")
        _, pairs = await client.head()
        assert await client.reader.readexactly(2) == b"ok"
    assert [value for name, value in pairs if name == b"x-request-id"] == [b"mine-1"]
    assert [value for name, value in pairs if name == b"x-upstream-request-id"] == [b"up-1"]
    assert not [value for name, value in pairs if name.startswith(b"x-context-proxy-") and value.endswith(b"=1")]
    assert b"x-context-proxy-anything" not in dict(pairs)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models", "/metrics", "/healthz", "/"])
async def test_a_page_whose_name_leads_here_gets_nothing_where_the_proxy_adds_its_key(path, client, seen):
    """DNS rebinding: this proxy listens on loopback and has a key."""
    line = f"{'POST' if path.count('/') > 1 and path != '/v1/models' else 'GET'} {path}"
    for strange in (["host: evil.test"], ["host: localhost", "origin: http://evil.test"]):
        client.writer.write("\r\n".join([f"{line} HTTP/1.1", *strange, "content-length: 2", "", "{}"]).encode())
        status, _, body = await client.answer()
        assert status == 403
        assert b"server.host_names" in body
        assert (b'"type":"error"' in body.replace(b" ", b"")) == (path == "/v1/messages")  # in the wire's shape
    assert seen == []
    client.writer.write(f"{line} HTTP/1.1\r\nhost: host.docker.internal\r\ncontent-length: 2\r\n\r\n{{}}".encode())
    assert (await client.answer())[0] != 403  # a container calls like that


async def test_named_hosts_pages_of_this_machine_and_programs_without_a_name_are_served(start):
    proxy = start(UPSTREAM__API_KEY="sk-configured-canary", SERVER__HOST_NAMES='["proxy.example"]')
    served = [
        b"host: proxy.example",
        b"host: 127.0.0.1:8787\r\norigin: http://localhost:3000",
        b"host: proxy.example\r\norigin: https://proxy.example",
        b"accept: */*",
    ]
    for headers in served:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /healthz HTTP/1.0\r\n" + headers + b"\r\n\r\n")
        assert (await reader.read()).split(b" ")[1] == b"200"
        writer.close()


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500, 503])
async def test_answers_and_errors_of_the_upstream_pass_as_they_are(status, proxy, client):
    text = b'{"error": {"message": "no \xe4", "odd": NaN}, "kept":  [1 ,2]}'
    head = b"HTTP/1.1 %d Odd\r\nx-ratelimit-remaining: 7\r\ncontent-length: %d\r\n\r\n" % (status, len(text))
    async with upstream(proxy, answering(head + text)):
        client.ask(CHAT, BODY)
        found, headers, body = await client.answer()
    assert (found, body, headers[b"x-ratelimit-remaining"]) == (status, text, b"7")


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{"role": "moderator", "content": null}], "model": "m", "n": NaN}',
        b'{"messages": [{"role": "user", "content": "\\ud800", "new": [ 1 ]}]  , "model": "m", "model": "n"}',
        b'{"messages": [{"role": "user", "content": [{"type": "hologram", "x": {}}, null, 7]}, "text"]}',
        b'{"messages": [], "stream": "yes", "max_tokens": -1}',
        '{"messages": [{"role": "tool", "content": "caf\u00e9 \u4e2d"}], "z": 1e999}'.encode(),
    ],
)
async def test_what_is_odd_is_the_upstreams_to_judge_and_passes_byte_for_byte(body, client, seen):
    client.ask(CHAT, body)
    assert (await client.answer())[0] == 200
    assert [request.body for request in seen] == [body]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"messages": 7}', b"\xff\xfe"])
async def test_what_is_no_chat_request_is_a_400_in_openais_shape(body, client):
    client.ask(CHAT, body)
    status, headers, answer = await client.answer()
    assert (status, headers[b"content-type"]) == (400, b"application/json")
    assert json.loads(answer)["error"].keys() == {"message", "type", "param", "code"}


PACKED = {"gzip": gzip.compress(BODY, mtime=0), "zstd": zstd.compress(BODY), "br": brotli.compress(BODY)}
TWICE = ("gzip, zstd", zstd.compress(PACKED["gzip"]))
UNKNOWN = ("compress", b"\x1f\x9d whatever")


@pytest.mark.parametrize(("encoding", "packed"), [*PACKED.items(), ("deflate", zlib.compress(BODY)), TWICE, UNKNOWN])
async def test_compressed_requests_pass_as_they_are(encoding, packed, client, seen):
    client.ask(CHAT, packed, f"content-encoding: {encoding}")
    status, headers, _ = await client.answer()
    is_read = encoding != "compress"
    assert (status, b"x-context-proxy-tokens" in headers) == (200, is_read)
    assert seen[0].body == packed
    assert seen[0].values(b"content-encoding") == [encoding.encode()]


@pytest.mark.parametrize(
    ("encoding", "packed_by"),
    [
        ("gzip", lambda body: gzip.compress(body, 1)),
        ("zstd", zstd.compress),
        ("br", lambda body: brotli.compress(body, quality=1)),
        ("zstd, br", lambda body: brotli.compress(zstd.compress(body), quality=1)),
    ],
)
async def test_a_bomb_is_a_413_and_takes_no_memory(encoding, packed_by, proxy, client):
    before = proxy.resident_bytes()
    client.ask(CHAT, packed_by(bytes(200_000_000))[:900_000], f"content-encoding: {encoding}")
    status, _, answer = await client.answer()
    assert (status, json.loads(answer)["error"]["code"]) == (413, "body_too_large")
    assert proxy.resident_bytes() - before < 20_000_000


@pytest.mark.parametrize(("encoding", "packed"), PACKED.items(), ids=PACKED)
async def test_a_broken_body_is_a_400(encoding, packed, client):
    client.ask(CHAT, packed[:-9], f"content-encoding: {encoding}")
    assert (await client.answer())[0] == 400


async def test_head_keeps_the_length_and_has_no_body(proxy, client):
    async with upstream(proxy, answering(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n", OK)):
        client.ask("HEAD /v1/files/x")
        assert (b"content-length", b"7") in (await client.head())[1]
        client.ask("GET /v1/files/x")
        assert (await client.answer())[2] == b"ok"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("line", [CHAT, "GET /v1/files/x/content", "HEAD /v1/files/x/content", "POST /v1/files"])
async def test_an_answer_that_never_has_a_body_passes_whatever_length_it_states(line, status, proxy, client):
    answer = b"HTTP/1.1 " + status + b'\r\netag: "x"\r\ncontent-length: 57\r\n\r\n'
    async with upstream(proxy, answering(answer)):
        client.ask(line, BODY if line.startswith("POST") else None, 'if-none-match: "x"')
        code, headers = await client.head()
        assert (b"%d" % code, dict(headers)[b"etag"]) == (status[:3], b'"x"')
        assert b"content-length" not in dict(headers)
        client.ask("GET /healthz")
        assert (await client.answer())[0] == 200
    assert "Traceback" not in proxy.log()


@pytest.mark.parametrize("keep", [[], ["connection: keep-alive"]])
@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (CHUNKED + chunk(b"data: 1\n\n") + chunk(b"data: [DONE]\n\n") + LAST_CHUNK, CHAT),
        (CHUNKED + chunk(b"data: 1\n\n") + chunk(b"data: [DONE]\n\n") + LAST_CHUNK, "GET /v1/files"),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: 1\n\ndata: [DONE]\n\n", "GET /v1/files"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 23\r\n\r\ndata: 1\n\ndata: [DONE]\n\n", "GET /v1/files"),
    ],
)
async def test_a_client_of_http_1_0_gets_a_body_that_ends_with_its_connection(answer, line, keep, proxy, client):
    async def script(connection):
        await connection.request()
        await connection.send(answer)
        connection.writer.close()

    async with upstream(proxy, script):
        length = len(BODY) if line == CHAT else 0
        head = [f"{line} HTTP/1.0", *keep, f"content-length: {length}", "", ""]
        client.writer.write("\r\n".join(head).encode() + BODY[:length])
        status, headers = await client.head()
        assert await client.reader.read() == b"data: 1\n\ndata: [DONE]\n\n"
    assert (status, dict(headers)[b"connection"]) == (200, b"close")
    assert b"transfer-encoding" not in dict(headers)


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/v1/nothing/../x", "/nowhere"])
async def test_a_client_of_http_1_0_gets_the_proxys_own_answers(path, client):
    client.writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    _, headers = await client.head()
    assert b"transfer-encoding" not in dict(headers)
    assert await client.reader.read()


LINES = [CHAT, "POST /v1/messages", "POST /v1/embeddings", "PUT /v1/files/x", "GET /v1/files", "HEAD /v1/files"]


@pytest.mark.parametrize("line", [*LINES, "DELETE /v1/files/x", "OPTIONS /v1/files"])
async def test_header_bytes_pass_both_ways_as_they_came(line, proxy, client):
    odd = {b"x-utf-8": "café".encode(), b"x-tab": b"a\tb  c", b"x-latin": b"caf\xe9", b"x-both": b"\xc3\xa9\xe9"}
    lines = b"".join(b"%b: %b\r\n" % pair for pair in odd.items())
    length = len(BODY) if line.startswith("P") else 0
    seen: list[Request] = []
    answer = b"HTTP/1.1 200 OK\r\n" + lines + b"content-length: 0 \t\r\n\r\n"
    async with upstream(proxy, answering(answer, seen=seen)):
        head = f"{line} HTTP/1.1\r\nhost: localhost\r\n".encode() + lines
        client.writer.write(head + b"content-length: %d \t\r\n\r\n" % length + BODY[:length])
        status, pairs = await client.head()
    assert (status, {name: value for name, value in pairs if name in odd}) == (200, odd)
    (request,) = [request for request in seen if request.line.startswith(line.encode() + b" ")]
    assert {name: value for name, value in request.headers if name in odd} == odd
    assert request.body == BODY[:length]


@pytest.mark.parametrize("line", ["GET /v1/models/x", CHAT])
@pytest.mark.parametrize("control", [b"\x01", b"\x0b", b"\x1f", b"\x7f"])
async def test_a_character_that_no_header_may_have_is_a_blank_and_costs_no_response(control, line, proxy, client):
    head = b"HTTP/1.1 200 OK\r\nx-a: b%bc\r\nx-tab: d\te\r\ncontent-length: 2\r\n\r\n" % control
    async with upstream(proxy, answering(head + b"ok")):
        client.ask(line, BODY if line == CHAT else None)
        status, headers, body = await client.answer()
    assert (status, headers[b"x-a"], headers[b"x-tab"], body) == (200, b"b c", b"d\te", b"ok")


async def test_a_blank_after_the_length_of_an_upload_changes_nothing(proxy, client):
    arrived, bodies = asyncio.Event(), list[bytes]()

    async def script(connection):
        await connection.reader.readuntil(b"\r\n\r\n")
        arrived.set()
        bodies.append(await connection.reader.readexactly(len(BODY)))
        await connection.send(OK)

    async with upstream(proxy, script):
        head = b"PUT /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length:\t%d \r\n\r\n" % len(BODY)
        client.writer.write(head + BODY[:5])
        await arrived.wait()
        client.writer.write(BODY[5:])
        assert (await client.answer())[0] == 200
    assert bodies == [BODY]


async def test_headers_about_a_connection_stay_on_it(proxy, client):
    seen: list[Request] = []
    answer = b"HTTP/1.1 200 OK\r\nconnection: x-up\r\nx-up: 1\r\nkeep-alive: timeout=5\r\nx-stays: 1\r\n"
    async with upstream(proxy, answering(answer + b"content-length: 0\r\n\r\n", seen=seen)):
        client.ask(CHAT, BODY, "connection: keep-alive, x-hop", "x-hop: 1", "te: trailers", "x-stays: 1")
        _, headers, _ = await client.answer()
    assert headers.keys() & {b"x-up", b"keep-alive", b"connection"} == set()
    assert headers[b"x-stays"] == b"1"
    assert {name for name, _ in seen[0].headers} & {b"x-hop", b"te", b"connection"} == set()
    assert seen[0].values(b"x-stays") == [b"1"]


async def test_the_configured_key_is_used_only_if_the_client_sends_none(client, seen):
    for headers in ([], ["authorization: Bearer sk-client-canary"], ["api-key: sk-client-canary"]):
        client.ask(CHAT, BODY, *headers)
        await client.answer()
    keys = [(request.values(b"authorization"), request.values(b"api-key")) for request in seen]
    assert keys == [
        ([b"Bearer sk-configured-canary"], []),
        ([b"Bearer sk-client-canary"], []),
        ([], [b"sk-client-canary"]),
    ]


async def test_a_request_without_a_usable_id_gets_one(proxy, client, seen):
    client.ask(CHAT, BODY, "x-request-id: two words")
    name = (await client.answer())[1][b"x-request-id"].decode()
    assert name.startswith("req-")
    assert (await proxy.logged(event="request_done", request_id=name))["status"] == 200


async def test_no_upstream_is_a_502_that_says_where(proxy, client):
    client.ask(CHAT + "?key=sk-query-canary", BODY)
    status, _, answer = await client.answer()
    assert (status, json.loads(answer)["error"]["code"]) == (502, "upstream_unreachable")
    assert str(proxy.upstream_port) in json.loads(answer)["error"]["message"]
    client.ask("GET /v1/files?key=sk-query-canary")
    assert (await client.answer())[0] == 502


async def test_50_megabytes_pass_in_both_directions_in_little_memory(proxy, client):
    piece = bytes(range(256)) * 256
    checksums: list[int] = []

    async def script(connection):
        request = await connection.head()
        left, checksum = int(request.values(b"content-length")[0]), 0
        while left:
            received = await connection.reader.read(min(left, 1 << 20))
            left, checksum = left - len(received), zlib.crc32(received, checksum)
        checksums.append(checksum)
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (800 * len(piece)))
        for _ in range(800):
            await connection.send(piece)

    before = proxy.resident_bytes()
    expected = 0
    async with upstream(proxy, script):
        form = "content-type: multipart/form-data; boundary=x"
        client.ask("POST /v1/files", None, f"content-length: {800 * len(piece)}", form)
        for _ in range(800):
            client.writer.write(piece)
            expected = zlib.crc32(piece, expected)
            await client.writer.drain()
        await client.head()
        left, checksum = 800 * len(piece), 0
        while left:
            received = await client.reader.read(1 << 20)
            left, checksum = left - len(received), zlib.crc32(received, checksum)
    assert checksums == [expected] == [checksum]
    assert proxy.resident_bytes(most=True) - before < 40_000_000


async def test_neither_keys_nor_content_are_ever_logged(proxy, client):
    """Runs after the tests above, whose requests are full of canaries, and adds the error paths of its own."""

    async def script(connection):
        await connection.request()
        head = CHUNKED.replace(b"\r\n\r\n", b"\r\nx-canary-header: canary\r\n\r\n")
        event = b'data: {"choices": [{"index": 0, "delta": {"content": "canary-answer"}}]}\n\n'
        await connection.send(head + chunk(event))

    async with upstream(proxy, script):
        key = "authorization: Bearer sk-client-canary"
        client.ask(CHAT + "?key=sk-query-canary", BODY, key, "x-request-id: canaries")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()
    line = await proxy.logged(event="request_done", request_id="canaries")
    assert line["outcome"] == "upstream_unreachable"
    assert "canary" not in proxy.log()
