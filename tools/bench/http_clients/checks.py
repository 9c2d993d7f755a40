"""Checks of each HTTP client's connections and bodies, and the table of all checks. A check is a small function.

Rule: real sockets, every client, and a hang is a "no".
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from tools.bench.http_clients import message_checks as messages
from tools.bench.http_clients.clients import CLIENTS, Client
from tools.bench.http_clients.wire import CHUNKED, OK, Open, Wire, answering, fails, whole


async def cancel_before_head(opened: Open) -> bool:
    async with answering(b"", then="wait") as wire:
        client = opened(wire.base_url)
        sending = asyncio.create_task(client.send("POST", b"/x", [], b"{}"))
        await wire.received.wait()
        sending.cancel()
        await asyncio.wait_for(wire.closed.wait(), 1)
    return True


async def abandon_body(opened: Open) -> bool:
    async with answering(CHUNKED + b"2\r\nhi\r\n", then="wait") as wire:
        answer = await opened(wire.base_url).send("POST", b"/x", [], b"{}")
        async for _ in answer.chunks():
            break
        await answer.aclose()
        await asyncio.wait_for(wire.closed.wait(), 1)
    return True


async def reuse(opened: Open) -> bool:
    async with answering(OK) as wire:
        client = opened(wire.base_url)
        for _ in range(3):
            assert await whole(await client.send("POST", b"/x", [], b"{}")) == b"ok"
            await asyncio.sleep(0.02)
        return wire.connections == 1


async def stale_pooled(opened: Open) -> bool:
    async with answering(OK, then="close") as wire:
        client = opened(wire.base_url)
        for _ in range(20):
            assert await whole(await client.send("POST", b"/x", [], b"{}")) == b"ok"
            await asyncio.sleep(0.01)
        return len(wire.heads) == 20


async def stale_unnoticed(opened: Open) -> str:
    """The close arrives while the loop is busy, so that no callback has run when the next POST is sent."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer_and_close() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    received = b""
                    while b"\r\n\r\n{}" not in received and (piece := connection.recv(65536)):
                        received += piece
                    connection.sendall(OK)
                    time.sleep(0.01)

    threading.Thread(target=answer_and_close, daemon=True).start()
    failed = 0
    client = opened(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    for _ in range(20):
        try:
            assert await whole(await client.send("POST", b"/x", [], b"{}")) == b"ok"
        except Exception:
            failed += 1
        time.sleep(0.03)  # noqa: ASYNC251 - a busy loop is what is checked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    return "yes" if not failed else f"no ({failed} of 20 fail)"


async def never_twice(opened: Open) -> bool:
    """The upstream accepts a POST on a reused connection and dies: an error, not a second POST."""

    async def script(wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.request(reader)
        writer.write(OK)
        await wire.request(reader)

    async with Wire(script) as wire:
        client = opened(wire.base_url)
        await whole(await client.send("POST", b"/x", [], b"{}"))
        failed = await fails(client)
        await asyncio.sleep(0.1)
        return failed and len(wire.heads) == 2


def broken(answer: bytes, then: str) -> Callable[[Open], Awaitable[bool]]:
    async def check(opened: Open) -> bool:
        async with answering(answer, then=then) as wire:
            return await fails(opened(wire.base_url))

    return check


async def uploads(opened: Open) -> bool:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"abc"

    async with answering(OK) as wire:
        client = opened(wire.base_url)
        await whole(await client.send("POST", b"/x", [], b"q" * 300_000))
        await whole(await client.send("POST", b"/x", [], pieces()))
        lengths = b"content-length: 300000" in wire.heads[0].lower()
        return lengths and [len(body) for body in wire.bodies] == [300_000, 9] and b"chunked" in wire.heads[1].lower()


async def upload_bounded(opened: Open) -> str:
    taken = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(1_000):
            taken += 65_536
            yield b"z" * 65_536

    async def script(_wire: Wire, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(5)

    async with Wire(script) as wire:
        sending = asyncio.create_task(opened(wire.base_url).send("POST", b"/x", [], pieces()))
        await asyncio.sleep(1)
        sending.cancel()
        return "yes" if taken < 20_000_000 else f"took {taken // 1_000_000} MB"


async def slow_reader(opened: Open) -> str:
    sent = 0

    async def script(wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await wire.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 80000000\r\n\r\n")
        for _ in range(1_000):
            writer.write(b"w" * 80_000)
            await writer.drain()
            sent += 80_000

    async with Wire(script) as wire:
        answer = await opened(wire.base_url).send("GET", b"/x", [], None)
        async for _ in answer.chunks():
            break
        await asyncio.sleep(0.7)
        await answer.aclose()
        return "yes" if sent < 20_000_000 else f"took {sent // 1_000_000} MB"


async def events_one_by_one(opened: Open) -> bool:
    taken = asyncio.Event()

    async def script(wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.request(reader)
        writer.write(CHUNKED)
        for _ in range(3):
            taken.clear()
            writer.write(b"3\r\nd\n\n\r\n")
            await asyncio.wait_for(taken.wait(), 1)  # the next event only after the previous one was seen
        writer.write(b"0\r\n\r\n")
        await wire.until_closed(reader)

    async with Wire(script) as wire:
        answer = await opened(wire.base_url).send("GET", b"/x", [], None)
        seen = []
        async for chunk in answer.chunks():
            seen.append(chunk)
            taken.set()
        await answer.aclose()
        return seen == [b"d\n\n"] * 3


async def many_parallel(opened: Open) -> bool:
    async with answering(CHUNKED + b"2\r\nhi\r\n", then="wait") as wire:
        client = opened(wire.base_url)
        answers = await asyncio.gather(*(client.send("POST", b"/x", [], b"{}") for _ in range(300)))
        for answer in answers:
            await answer.aclose()
        return wire.connections == 300


CHECKS: dict[str, Callable[[Open], Awaitable[bool | str]]] = {
    "cancel before the head closes at once": cancel_before_head,
    "an abandoned body closes at once": abandon_body,
    "connection reused after a whole body": reuse,
    "connection closed while idle: no error": stale_pooled,
    "closed while the loop was busy: no error": stale_unnoticed,
    "a POST that was taken is not sent twice": never_twice,
    "reset in mid-body is an error": broken(CHUNKED + b"2\r\nhi\r\n", "reset"),
    "reset in a body without length is an error": broken(b"HTTP/1.1 200 OK\r\n\r\nhi", "reset"),
    "content-length too short is an error": broken(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", "close"),
    "no final chunk is an error": broken(CHUNKED + b"2\r\nhi\r\n", "close"),
    "bodies up: length and chunked": uploads,
    "streamed upload is bounded": upload_bounded,
    "slow reader: back-pressure": slow_reader,
    "gzip passes as received": messages.undecoded,
    "no redirect followed": messages.no_redirect,
    "repeated headers stay, no cookies kept": messages.repeated_headers_no_cookies,
    "nothing is added": messages.nothing_added,
    "user-agent and the like pass": messages.passed_as_they_are,
    "latin-1 header up": messages.latin1_up,
    "latin-1 header down": messages.latin1_down,
    "UTF-8 header up": messages.utf8_up,
    "target `//`, `+`, `%2F`": messages.target(b"/a//b+c%2Fd?q=a+b%20c&x"),
    "target `..`": messages.target(b"/a/../b"),
    "target `%2e%2e`": messages.target(b"/a/%2e%2e/b"),
    "target with `|`, `'` and `\"`": messages.target(b"/a|b?q='\""),
    "proxy from the environment, NO_PROXY": messages.env_proxy,
    "TLS verified, SSL_CERT_FILE": messages.tls,
    "events arrive one by one": events_one_by_one,
    "204, 304 and HEAD": messages.without_body,
    "1xx is passed over": messages.informational,
    "300 streams at once": many_parallel,
    "a header of 60 KB": messages.large_heads,
    "90 headers": messages.many_headers,
}


async def check_all(names: list[str]) -> None:
    """Print one row for each check and one column for each client. A check has 8 seconds."""
    print("| check | " + " | ".join(names) + " |\n|---" * 1 + "|---" * len(names) + "|")
    for title, check in CHECKS.items():
        print(f"| {title} | " + " | ".join([await _verdict(check, CLIENTS[name]) for name in names]) + " |", flush=True)


async def _verdict(check: Callable[[Open], Awaitable[bool | str]], make: Open) -> str:
    opened: list[Client] = []

    def open_client(base_url: str) -> Client:
        opened.append(make(base_url))
        return opened[-1]

    try:
        found = await asyncio.wait_for(check(open_client), 8)
    except Exception as error:
        found = f"no ({type(error).__name__})"
    for client in opened:
        await client.aclose()
    return found if isinstance(found, str) else "yes" if found else "no"
