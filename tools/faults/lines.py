"""Faults on Ollama's own API: lines that break off, that are very long, or that say nothing, bodies that are no
requests, and downloads that take hours.

Rule: the client gets the whole reply, or an error in this API's shape; a broken reply never has a line with
`"done": true`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from support.upstream import Connection, Request

from tools.faults.client_faults import bodies
from tools.faults.stage import CANARY, PATIENCE_SECONDS, Heard, Stage, chat, staged, whole
from tools.faults.trials import Extent, Tried

_CHAT: Final = "/api/chat"
_PROMPT: Final = "/api/generate"
_HEAD: Final = b"HTTP/1.1 200 X\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
_END: Final = b'"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":2}\n'
_REPLY: Final = (
    b'{"model":"m","message":{"role":"assistant","content":"Do"},"done":false}\n'
    b'{"model":"m","message":{"role":"assistant","content":"ne."},"done":false}\n'
    b'{"model":"m","message":{"role":"assistant","content":""},' + _END
)
_LONG_BYTES: Final = 100_000_000
_MOST_MEGABYTES: Final = 250
"""One line of 100 MB, the memory in which it grows, and what a plain process takes."""
_PULLS: Final = 50
_TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
_PIECE_BYTES: Final = 1_000_000


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""


async def _say(pieces: Sequence[bytes], connection: Connection, _: Request, *, ends: bool = True) -> None:
    """A stream in these pieces; without its end, the connection breaks off."""
    await connection.send(_HEAD)
    for piece in pieces:
        for start in range(0, len(piece), _PIECE_BYTES):
            await connection.send(_chunk(piece[start : start + _PIECE_BYTES]))
    if ends:
        await connection.send(b"0\r\n\r\n")
    else:
        connection.writer.close()


async def _ask(stage: Stage, *, with_tool: bool = False, path: str = _CHAT) -> Heard:
    """A chat, or a prompt. `with_tool`: the proxy reads each line, because it offers its own tool as well."""
    if path == _PROMPT:
        return await stage.ask(json.dumps({"model": "m", "prompt": CANARY}).encode(), path=path)
    return await stage.ask(chat(tools=[_TOOL] if with_tool else []), path=path)


async def lines(extent: Extent) -> list[Tried]:
    """Replies in lines are split, and broken off, at each of their bytes."""
    split = Tried("A reply in lines may arrive in any pieces", "replies of Ollama's API split after each byte")
    broken = Tried("A broken answer never looks whole", "replies of Ollama's API closed after each byte")
    async with staged() as stage:
        for with_tool in (False, True):
            for stop in range(1, len(_REPLY), extent.every):
                stage.upstream.answer = partial(_say, [_REPLY[:stop], _REPLY[stop:]])
                heard = await _ask(stage, with_tool=with_tool)
                split.note(f"after byte {stop}: {heard.body[-80:]!r}", held=heard.is_whole and heard.body == _REPLY)
                stage.upstream.answer = partial(_say, [_REPLY[:stop]], ends=False)
                heard = await _ask(stage, with_tool=with_tool)
                is_reported = heard.reports_an_error and not any(map(_is_last, heard.body.splitlines()))
                said_it_all = heard.body.rstrip() == _REPLY.rstrip()
                broken.note(f"after byte {stop}: {heard.body[-80:]!r}", held=is_reported or said_it_all)
    return [split, broken]


def _is_last(line: bytes) -> bool:
    try:
        return bool(json.loads(line).get("done"))
    except ValueError:
        return False  # of a line that broke off


async def long_lines(extent: Extent) -> list[Tried]:
    """A line of 100 MB, a hundred thousand blank lines, and compressed lines that unpack to 200 MB."""
    passed = Tried("A reply in lines reaches its client whole", "a line of 100 MB, and 100,000 blank lines")
    memory = Tried(f"Long lines take at most {_MOST_MEGABYTES} MB", "a line of 100 MB, lines that unpack to 200 MB")
    text = b"a" * (_LONG_BYTES // extent.every)
    long = b'{"model":"m","message":{"role":"assistant","content":"%b"},' % text + _END
    prompt = b'{"model":"m","response":"%b",' % text + _END
    flood = b"\n" * 100_000 + _REPLY
    cases = (
        ("a long line", _CHAT, False, long),
        ("a long line, read", _CHAT, True, long),
        ("a long line of a prompt", _PROMPT, False, prompt),
        ("blank lines", _CHAT, False, flood),
        ("blank lines, read", _CHAT, True, flood),
    )
    for name, path, with_tool, reply in cases:
        async with staged() as stage:
            stage.upstream.answer = partial(_say, [reply])
            heard = await _ask(stage, with_tool=with_tool, path=path)
            is_same = heard.body.lstrip(b"\n") == reply.lstrip(b"\n")
            passed.note(f"{name}: {heard.status}, {len(heard.body):,} bytes", held=heard.is_whole and is_same)
            found = stage.memory_megabytes()
            memory.note(f"{name}: {found} MB", held=found < _MOST_MEGABYTES and await stage.is_well())
    async with staged() as stage:
        for with_tool in (False, True):
            stage.upstream.answer = _bomb
            heard = await _ask(stage, with_tool=with_tool)
            found = stage.memory_megabytes()
            memory.note(f"a bomb: {heard.status}, {found} MB", held=found < _MOST_MEGABYTES and await stage.is_well())
    return [passed, memory]


async def _bomb(connection: Connection, _: Request) -> None:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)  # gzip's format
    packed = b"".join(packer.compress(b" " * 1_000_000) for _ in range(200)) + packer.compress(_REPLY) + packer.flush()
    head = (
        b"HTTP/1.1 200 X\r\ncontent-type: application/x-ndjson\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    )
    await connection.send(head % len(packed) + packed)


async def odd_chats(_: Extent) -> list[Tried]:
    """Bodies that are no requests, on both paths."""
    plain = bodies()
    plain |= {
        "images that are none": b'{"model":"m","messages":[{"role":"user","images":["%%",7,null]}]}',
        "images that are a text": b'{"model":"m","prompt":"x","images":"iVBOR"}',
        "calls whose arguments are a text": b'{"model":"m","messages":[{"role":"assistant","tool_calls":'
        b'[{"function":{"name":"a","arguments":"{}"}}]},{"role":"tool","content":"x"}]}',
        "a window that is a text": b'{"model":"m","messages":[],"options":{"num_ctx":"8k"}}',
        "options that are a list": b'{"model":"m","prompt":"x","options":[1]}',
    }
    packed = {f"{name}, compressed": gzip.compress(body, 1) for name, body in plain.items()}
    tried = Tried(
        "No body makes the proxy fail: it is refused with a reason, or passed on",
        f"{len(plain) + len(packed)} bodies on each of Ollama's two paths",
    )
    async with staged() as stage:
        stage.upstream.answer = partial(_say, [_REPLY])
        for path in (_CHAT, _PROMPT):
            for name, body in (plain | packed).items():
                more = {"content_encoding": "gzip"} if name in packed else {}
                heard = await stage.ask(body, path=path, **more)
                is_answered = heard.is_whole and heard.status in (200, 400, 413)
                is_text = heard.status == 200 or isinstance(json.loads(heard.body)["error"], str)
                is_well = await stage.is_well()
                tried.note(f"{path}, {name}: status {heard.status}", held=is_answered and is_text and is_well)
        defects = stage.log().count(b'"planning_failed"') + stage.log().count(b'"request_failed"')
        tried.note(f"{defects} defects in the log", held=not defects)
    return [tried]


async def pulls(extent: Extent) -> list[Tried]:
    """Models are downloaded: progress in lines, each a moment after the one before, for longer than any timeout of a
    chat; and clients leave in the middle."""
    count = max(8, 60 // extent.every)
    whole_pull = Tried(
        "A download reports its progress for as long as it takes",
        f"{_PULLS} at once, for {count // 2} times the longest silence that is allowed",
    )
    left = Tried("A model stops thinking for a client that left", "clients that leave a download, or a reply in lines")
    rows = [b'{"status":"pulling","completed":%d}\n' % number for number in range(count)]

    async def progress(connection: Connection, _: Request) -> None:
        await connection.send(_HEAD)
        for row in rows:
            await connection.send(_chunk(row))
            await asyncio.sleep(0.5)
        await connection.send(b"0\r\n\r\n")

    async with staged(upstream={"first_byte_timeout_seconds": 1, "idle_timeout_seconds": 1}) as stage:
        stage.upstream.answer = progress
        tasks = [stage.ask(b'{"model":"m"}', path="/api/pull") for _ in range(_PULLS)]
        for heard in await asyncio.gather(*tasks):
            held = heard.is_whole and heard.body == b"".join(rows)
            whole_pull.note(f"{heard.status}, {heard.body.count(b'pulling')} lines", held=held)
        for path, body in (("/api/pull", b'{"model":"m"}'), (_CHAT, chat())):
            for _ in range(max(3, 30 // extent.every)):
                left.note(path, held=await _leaves(stage, path, body))
        stage.upstream.answer = _loaded
        left.note("the next client", held=(await _ask(stage)).status == 200)
    return [whole_pull, left]


async def _loaded(connection: Connection, _: Request) -> None:
    await connection.send(whole(200, b'{"model":"m","message":{"role":"assistant","content":"Done."},' + _END))


async def _leaves(stage: Stage, path: str, body: bytes) -> bool:
    """Leave after the first line; whether the upstream gets to know."""
    stopped = asyncio.Event()

    async def endless(connection: Connection, _: Request) -> None:
        await connection.send(_HEAD + _chunk(_REPLY.partition(b"\n")[0] + b"\n"))
        await connection.reader.read(1)
        stopped.set()

    stage.upstream.answer = endless
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (path.encode(), len(body), body))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reader.readuntil(b'"done":false}')
        writer.close()
        await stopped.wait()
    return stopped.is_set()
