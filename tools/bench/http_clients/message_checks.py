"""Checks of each HTTP client's messages: headers, targets, statuses, encodings, and the way to the upstream."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tools.bench.http_clients.processes import make_certificate
from tools.bench.http_clients.wire import OK, Open, answering, fails, whole


async def undecoded(opened: Open) -> bool:
    import gzip

    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    async with answering(head + packed) as wire:
        answer = await opened(wire.base_url).send("GET", b"/x", [], None)
        return (b"content-encoding", b"gzip") in answer.headers and await whole(answer) == packed


async def no_redirect(opened: Open) -> bool:
    async with answering(b"HTTP/1.1 302 Found\r\nlocation: /else\r\ncontent-length: 0\r\n\r\n") as wire:
        answer = await opened(wire.base_url).send("GET", b"/x", [], None)
        return answer.status == 302 and len(wire.heads) == 1


async def repeated_headers_no_cookies(opened: Open) -> bool:
    two = b"HTTP/1.1 200 OK\r\nset-cookie: a=1; Path=/\r\nset-cookie: b=2\r\ncontent-length: 0\r\n\r\n"
    async with answering(two) as wire:
        client = opened(wire.base_url.replace("127.0.0.1", "localhost"))  # cookie jars store nothing for IP addresses
        answer = await client.send("GET", b"/x", [(b"x-r", b"1"), (b"x-r", b"2")], None)
        cookies = [value for name, value in answer.headers if name == b"set-cookie"]
        await whole(answer)
        await whole(await client.send("GET", b"/x", [], None))
        sent_twice = wire.heads[0].lower().count(b"x-r:") == 2
        return cookies == [b"a=1; Path=/", b"b=2"] and sent_twice and b"cookie" not in wire.heads[1].lower()


async def nothing_added(opened: Open) -> str:
    async with answering(OK) as wire:
        await whole(await opened(wire.base_url).send("POST", b"/x", [], b"{}"))
        names = {line.split(b":")[0].lower().decode() for line in wire.heads[0].split(b"\r\n")[1:] if line}
        added = names - {"host", "connection", "content-length"}
        return "yes" if not added else "adds " + ", ".join(sorted(added))


async def passed_as_they_are(opened: Open) -> bool:
    async with answering(OK) as wire:
        pairs = [(b"user-agent", b"me/1"), (b"accept-encoding", b"br"), (b"accept", b"a/b"), (b"content-type", b"t/u")]
        await whole(await opened(wire.base_url).send("POST", b"/x", pairs, b"{}"))
        return all(name + b": " + value in wire.heads[0].lower() for name, value in pairs)


async def _header_bytes(opened: Open, value: bytes, *, sent: bool) -> bool:
    async with answering(b"HTTP/1.1 200 OK\r\nx-v: %b\r\ncontent-length: 0\r\n\r\n" % (b"" if sent else value)) as wire:
        answer = await opened(wire.base_url).send("GET", b"/x", [(b"x-q", value)] if sent else [], None)
        found = (b"x-v", value) in answer.headers
        return value in wire.heads[0] if sent else found


async def latin1_up(opened: Open) -> bool:
    return await _header_bytes(opened, b"caf\xe9", sent=True)


async def latin1_down(opened: Open) -> bool:
    return await _header_bytes(opened, b"caf\xe9", sent=False)


async def utf8_up(opened: Open) -> bool:
    return await _header_bytes(opened, "café 中".encode(), sent=True)


def target(path: bytes) -> Callable[[Open], Awaitable[bool | str]]:
    async def check(opened: Open) -> bool | str:
        async with answering(OK) as wire:
            await whole(await opened(wire.base_url).send("GET", path, [], None))
            seen = wire.heads[0].split(b" ")[1]
            return seen == b"/v1" + path or f"sends `{seen.decode('latin-1')}`"

    return check


async def env_proxy(opened: Open) -> bool:
    async with answering(OK) as wire:
        os.environ["HTTP_PROXY"] = os.environ["http_proxy"] = wire.base_url.removesuffix("/v1")
        try:
            await whole(await opened("http://model.invalid/v1").send("GET", b"/x", [], None))
            through = wire.heads[0].startswith(b"GET http://model.invalid/v1/x ")
            os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
            async with answering(OK) as straight:
                await whole(await opened(straight.base_url).send("GET", b"/x", [], None))
                return through and len(straight.heads) == 1
        finally:
            for name in ("HTTP_PROXY", "NO_PROXY", "http_proxy", "no_proxy"):
                os.environ.pop(name, None)


async def tls(opened: Open) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificate(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        wire = answering(OK)
        server = await asyncio.start_server(wire._connected, "127.0.0.1", 0, ssl=context)
        base_url = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        refused = await fails(opened(base_url))
        os.environ["SSL_CERT_FILE"] = str(folder / "cert.pem")
        try:
            trusted = await whole(await opened(base_url).send("GET", b"/x", [], None)) == b"ok"
        finally:
            del os.environ["SSL_CERT_FILE"]
            server.close()
        return refused and trusted


async def without_body(opened: Open) -> bool:
    async with answering(
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
    ) as wire:
        client = opened(wire.base_url)
        found = []
        for method in ("GET", "GET", "HEAD"):
            answer = await client.send(method, b"/x", [], None)
            found.append((answer.status, await whole(answer)))
            await asyncio.sleep(0.02)
        return found == [(204, b""), (304, b""), (200, b"")]


async def informational(opened: Open) -> bool:
    async with answering(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK) as wire:
        answer = await opened(wire.base_url).send("GET", b"/x", [], None)
        return answer.status == 200 and await whole(answer) == b"ok"


async def large_heads(opened: Open) -> bool:
    value = b"v" * 60_000
    async with answering(b"HTTP/1.1 200 OK\r\nx-v: %b\r\ncontent-length: 0\r\n\r\n" % value) as wire:
        answer = await opened(wire.base_url).send("GET", b"/x", [(b"x-q", value)], None)
        return (b"x-v", value) in answer.headers and value in wire.heads[0]


async def many_headers(opened: Open) -> bool:
    lines = b"".join(b"x-%d: 1\r\n" % number for number in range(90))
    async with answering(b"HTTP/1.1 200 OK\r\n" + lines + b"content-length: 0\r\n\r\n") as wire:
        return len((await opened(wire.base_url).send("GET", b"/x", [], None)).headers) >= 90
