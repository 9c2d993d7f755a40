"""Faults of a client: it leaves at any byte, sends something other than HTTP, or something other than a request.

Rule: other clients notice nothing, nothing keeps waiting for a client that left, and no body makes the proxy fail.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import zlib
from typing import Final

from support.upstream import Connection, Request

from tools.faults.stage import CANARY, COMPLETION, KEY, PATIENCE_SECONDS, Stage, accept, chat, staged
from tools.faults.trials import Extent, Tried

_HEAD: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + KEY.encode() + b"\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with zero time: a close resets the connection."""


def _message(**members: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": CANARY} | members]}).encode()


def bodies() -> dict[str, bytes]:
    """Bodies by what is odd about them; five megabytes."""
    return {
        "nothing": b"",
        "no JSON": b"{",
        "a list": b"[]",
        "a number": b"17",
        "null": b"null",
        "no UTF-8": b'{"model": "m", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
        "a byte order mark": b"\xef\xbb\xbf" + chat(),
        "lone surrogates": b'{"model": "m\\ud800", "messages": [{"role": "user", "content": "\\udfff"}]}',
        "nul characters": b'{"model": "m\\u0000", "messages": [{"role": "user", "content": "\\u0000"}]}',
        "a hundred thousand brackets": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "as many, open": b'{"messages": ' + b"[" * 100_000,
        "numbers without end": b'{"max_tokens": 1' + b"0" * 10_000 + b', "messages": []}',
        "not a number": b'{"max_tokens": NaN, "messages": []}',
        "members twice": b'{"messages": [], "messages": [{"role": "user", "content": "x"}], "model": 1, "model": "m"}',
        "messages that are a text": b'{"model": "m", "messages": "hello"}',
        "messages that are numbers": b'{"model": "m", "messages": [1, 2, null, [], "x"]}',
        "no messages": b'{"model": "m"}',
        "a model of a megabyte": json.dumps({"model": "m" * 1_000_000, "messages": []}).encode(),
        "a role that is a list": _message(role=["user"]),
        "content that is a number": _message(content=17),
        "content of nested lists": _message(content=[[[{"type": "text", "text": "x"}]]]),
        "parts without a type": _message(content=[{}, None, 1, {"text": 1}]),
        "calls that are a text": _message(role="assistant", tool_calls="call"),
        "calls without a function": _message(role="assistant", tool_calls=[{}, None, {"id": 1, "function": []}]),
        "a result of no call": _message(role="tool", tool_call_id="nobody"),
        "a result whose id is a number": _message(role="tool", tool_call_id=1),
        "an image that is none": _message(content=[{"type": "image_url", "image_url": "data:image/png;base64,%%%"}]),
        "a hundred thousand messages": b'{"model": "m", "messages": ['
        + b'{"role":"user","content":"x"},' * 99_999
        + b'{"role":"user","content":"x"}]}',
        "tools that are a text": chat(tools="bash"),
        "a reply limit below nothing": chat(max_tokens=-5),
        "a stream that is a text": chat(stream="yes"),
    }


async def leaving(extent: Extent) -> list[Tried]:
    """A client leaves after each byte of its request, politely or not."""
    body = chat()
    raw = _HEAD % len(body) + body
    found = []
    async with staged() as stage:
        for how in ("closes", "resets"):
            tried = Tried("A client that left holds up no other client", f"a client {how} after each byte")
            for stop in range(0, len(raw), extent.every):
                await _leave(stage.port, raw[:stop], how)
                tried.times += 1
            tried.note("the next client", held=(await stage.ask(chat())).body == COMPLETION)
            tried.note("requests still at the upstream", held=await _comes_to_rest(stage))
            found.append(tried)
        found.append(await _leaving_early(stage, extent))
    return found


async def _leave(port: int, raw: bytes, how: str) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    await writer.drain()
    if how == "resets":
        writer.get_extra_info("socket").setsockopt(1, 13, _RESET)
    writer.close()


async def _leaving_early(stage: Stage, extent: Extent) -> Tried:
    """Clients that leave while the model thinks: the upstream request must end."""
    tried = Tried(
        "A model stops thinking for a client that left", "clients that leave before the first byte of an answer"
    )

    async def think(connection: Connection, _: Request) -> None:
        await connection.reader.read(1)

    body = chat(stream=True)
    for _ in range(max(3, 60 // extent.every)):
        stage.upstream.answer = think
        _, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        writer.write(_HEAD % len(body) + body)
        await writer.drain()
        while not stage.upstream.in_work:
            await asyncio.sleep(0.01)
        writer.close()
        tried.note("an upstream that keeps sending", held=await _comes_to_rest(stage))
    stage.upstream.answer = accept
    return tried


async def _comes_to_rest(stage: Stage) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while stage.upstream.in_work:
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True


def _bomb(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)  # gzip's format
    return b"".join(packer.compress(b" " * 1_000_000) for _ in range(megabytes)) + packer.flush()


async def hostile_bodies(_: Extent) -> list[Tried]:
    """Bodies that are not requests: refused with a reason, or passed on for the upstream to judge."""
    plain = bodies()
    packed = {f"{name}, compressed": gzip.compress(body, 1) for name, body in plain.items()}
    packed["a bomb"] = _bomb(megabytes=200)
    tried = Tried(
        "No body makes the proxy fail: it is refused with a reason, or passed on",
        f"{len(plain) + len(packed)} bodies, and 5 transfer codings",
    )
    async with staged() as stage:
        for name, body in (plain | packed).items():
            more = {"content_encoding": "gzip"} if name in packed else {}
            heard = await stage.ask(body, **more)
            is_answered = heard.is_whole and heard.status in (200, 400, 413, 422)
            tried.note(f"{name}: status {heard.status}", held=is_answered and await stage.is_well())
        for coding in ("gzip, chunked", "gzip", "chunked, gzip", "chunked, chunked", "identity"):
            head = {"host": "localhost", "transfer-encoding": coding}
            heard = await stage.say(b"POST", "/v1/chat/completions", head, b"0\r\n\r\n")
            wanted = 501 if coding == "gzip, chunked" else 400
            tried.note(f"{coding}: status {heard.status}", held=heard.status == wanted and await stage.is_well())
        defects = stage.log().count(b'"planning_failed"') + stage.log().count(b'"request_failed"')
        tried.note(f"{defects} defects in the log", held=not defects)
    return [tried]
