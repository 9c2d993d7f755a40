"""Faults of an upstream: it breaks off at any byte, or sends something other than HTTP or JSON.

Rule: the client gets the whole response or an error; a broken response never looks whole.
"""

from __future__ import annotations

import asyncio

from support.upstream import Connection, Request

from tools.faults.stage import (
    COMPLETION,
    EVENTS,
    PATIENCE_SECONDS,
    Stage,
    accept,
    chat,
    staged,
    streamed,
    whole,
)
from tools.faults.trials import Extent, Tried


def _nonsense() -> dict[str, bytes]:
    """Responses that are none, or none with a meaning."""
    return {
        "no HTTP": b"hello\r\n\r\n",
        "nothing": b"",
        "a bare 101": b"HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        "two lengths": b"HTTP/1.1 200 X\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "a negative length": b"HTTP/1.1 200 X\r\ncontent-length: -5\r\n\r\n",
        "a length that is no number": b"HTTP/1.1 200 X\r\ncontent-length: five\r\n\r\n",
        "a chunk of no length": b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "a status of 600": b"HTTP/1.1 600 X\r\ncontent-length: 2\r\n\r\n{}",
        "a status of 999": b"HTTP/1.1 999 X\r\ncontent-length: 2\r\n\r\n{}",
        "a status of no number": b"HTTP/1.1 ok X\r\n\r\n",
        "a head of 10 MB": b"HTTP/1.1 200 X\r\n" + b"x: " + b"a" * 10_000_000 + b"\r\n\r\n",
        "500 with nothing": whole(500, b""),
        "400 in another language": whole(400, "请求错误".encode()),
        "an error page": whole(502, b"<html>Bad gateway</html>", "text/html"),
    }


async def broken_answers(extent: Extent) -> list[Tried]:
    """Each response is broken off after each of its bytes."""
    found = []
    async with staged(artifacts={"retrieval_tool": "never"}) as stage:
        for name, raw, body in (
            ("an answer", whole(200, COMPLETION), chat()),
            ("a stream", streamed(EVENTS), chat(stream=True)),
        ):
            for how in ("closed", "reset"):
                tried = Tried("A broken answer never looks whole", f"{name} is {how} after each byte")
                for stop in range(0, len(raw), extent.every):
                    await _broken(stage, tried, raw[:stop], body, how)
                found.append(tried)
    return found


async def _broken(stage: Stage, tried: Tried, raw: bytes, body: bytes, how: str) -> None:
    async def break_off(connection: Connection, _: Request) -> None:
        await connection.send(raw)
        if how == "reset":
            connection.reset()
        else:
            connection.writer.close()

    stage.upstream.answer = break_off
    heard = await stage.ask(body)
    said_it_all = heard.body.rstrip() == EVENTS.rstrip()  # up to its `[DONE]`: the line ends after it do not matter
    tried.note(f"{how} after byte {len(raw)}: status {heard.status}", held=heard.reports_an_error or said_it_all)


async def nonsense(_: Extent) -> list[Tried]:
    """A nonsensical response becomes an error that says so, and the proxy survives."""
    kinds = _nonsense()
    tried = Tried("An upstream's nonsense is an error with words, and the proxy lives", f"{len(kinds)} kinds of it")
    async with staged() as stage:
        for name, raw in kinds.items():

            async def say(connection: Connection, _: Request, raw: bytes = raw) -> None:
                await connection.send(raw)
                connection.writer.close()

            stage.upstream.answer = say
            heard = await stage.ask(chat())
            stage.upstream.answer = accept
            lives = (await stage.ask(chat())).body == COMPLETION
            tried.note(f"{name}: status {heard.status}", held=heard.reports_an_error and lives)
    return [tried]


async def forged_headers(_: Extent) -> list[Tried]:
    """An upstream sends headers that look like the proxy's own."""
    tried = Tried("What looks like a header of the proxy is one", "responses with such headers of the upstream")
    forged = (
        b"HTTP/1.1 200 X\r\nX-Context-Proxy-Tokens: forged\r\nx-context-proxy-new: forged\r\nx-request-id: forged\r\n"
    )

    async def forge(connection: Connection, _: Request) -> None:
        await connection.send(
            forged + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(COMPLETION)
        )
        await connection.send(COMPLETION)

    async with staged() as stage:
        stage.upstream.answer = forge
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/v1/files"):
            headers = await _headers(stage, path)
            named = [name for name, value in headers if value == b"forged"]
            tried.note(f"{path}: {named}", held=named == [b"x-upstream-request-id"])
    return [tried]


async def _headers(stage: Stage, path: str) -> list[tuple[bytes, bytes]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    body = chat()
    writer.write(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    async with asyncio.timeout(PATIENCE_SECONDS):
        _, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    writer.close()
    return [(name.lower(), value) for name, _, value in (line.partition(b": ") for line in lines)]
