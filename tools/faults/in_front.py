"""nginx and Caddy in front of a proxy: their clients leave, read slowly, and pass for this machine.

Rule: a client behind a front is served like any other, and gets nothing that only this machine may have.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from support.upstream import Connection, Request

from tools.faults.stage import (
    COMPLETION,
    EVENTS,
    KEY,
    PATIENCE_SECONDS,
    Stage,
    accept,
    chat,
    long_text,
    staged,
    streamed,
    whole,
    with_result,
)
from tools.faults.storage import NAME
from tools.faults.trials import Extent, Tried
from tools.ports import held_port

FRONTS: Final = tuple(name for name in ("nginx", "caddy") if shutil.which(name) is not None)
_PAGES: Final = ("/", "/decisions", "/overview", "/events", "/openapi.json", "/docs", "/explain", "/-/reload")
"""The operator's, which this machine may open without a key."""
_LEFT_SECONDS: Final = 10.0
"""After which the upstream no longer works for a client that left."""
_QUICK_SECONDS: Final = 5.0
_LARGE: Final = COMPLETION[:-1] + b" " * 20_000_000 + b"}"
_SCRATCH: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


async def in_front(extent: Extent) -> list[Tried]:
    """Each front with the settings that docs and deploy/ give."""
    serves = Tried("A front passes requests and streams whole", " and ".join(FRONTS))
    hides = Tried(
        "No client behind a running front counts as this machine", "the operator's pages, and paths in notices"
    )
    leaves = Tried("A model stops for a client that leaves a front", "clients that leave in the middle of a stream")
    slow = Tried(
        "A client that reads slowly behind a front delays no other client",
        "20 MB read in pieces, and requests beside it",
    )
    for name in FRONTS:
        async with staged() as stage, _front(name, stage.port) as port:
            behind = Stage(port, stage.upstream, stage.folder, stage.process)
            heard = await behind.ask(chat())
            serves.note(f"{name}: {heard.status}", held=heard.body == COMPLETION)
            heard = await behind.ask(chat(stream=True))
            serves.note(f"{name}: a stream, {heard.status}", held=heard.is_whole and heard.body == EVENTS)
            for page in _PAGES:
                for host in ("localhost", "127.0.0.1", "proxy.example"):
                    for forged in ({}, {"x-forwarded-for": "127.0.0.1"}, {"x-forwarded-for": ""}):
                        got = await behind.say(b"GET", page, {"host": host, "authorization": f"Bearer {KEY}", **forged})
                        hides.note(f"{name}: {page} as {host} {forged}: {got.status}", held=got.status in (403, 405))
            await behind.ask(with_result(long_text(1)))
            sent = stage.upstream.bodies[-1]
            held = NAME.search(sent) is not None and str(stage.folder).encode() not in sent
            hides.note(f"{name}: no path of this machine in a notice", held=held)
            await _leaving(name, behind, leaves, extent.patience * _LEFT_SECONDS)
            await _slow_reader(name, stage, behind, slow, extent.patience * _QUICK_SECONDS)
    return [serves, hides, leaves, slow]


async def _leaving(name: str, behind: Stage, tried: Tried, most_seconds: float) -> None:
    go_on = asyncio.Event()

    async def think(connection: Connection, _: Request) -> None:
        await connection.send(streamed(EVENTS)[:300])
        gone = asyncio.create_task(connection.reader.read())
        waiting = asyncio.create_task(go_on.wait())
        await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    behind.upstream.answer = think
    body = chat(stream=True)
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    for number in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", behind.port)
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        await reader.read(100)
        writer.close()
        begun = time.perf_counter()
        while behind.upstream.in_work and time.perf_counter() - begun < most_seconds:
            await asyncio.sleep(0.05)
        tried.note(f"{name}: {number} is still in work", held=not behind.upstream.in_work)
    go_on.set()
    behind.upstream.answer = accept


async def _slow_reader(name: str, stage: Stage, behind: Stage, tried: Tried, most_seconds: float) -> None:
    async def large(connection: Connection, _: Request) -> None:
        await connection.send(whole(200, _LARGE))

    stage.upstream.answer = large
    body = chat()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", behind.port, limit=65_536)
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    read = 0
    for _ in range(20):
        read += len(await reader.read(65_536))
        await asyncio.sleep(0.1)
    stage.upstream.answer = accept
    for number in range(5):
        begun = time.perf_counter()
        heard = await behind.ask(chat())
        is_quick = time.perf_counter() - begun < most_seconds
        tried.note(f"{name}: request {number} beside it: {heard.status}", held=heard.status == 200 and is_quick)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while piece := await reader.read(1_000_000):
            read += len(piece)
    writer.close()
    tried.note(f"{name}: {read:,} bytes read slowly", held=read > len(_LARGE))


@contextlib.asynccontextmanager
async def _front(name: str, proxy_port: int) -> AsyncIterator[int]:
    """A front that listens at a port of its own."""
    with held_port() as port, tempfile.TemporaryDirectory(prefix="faults-") as made:
        folder = Path(made)
        process = await asyncio.create_subprocess_exec(
            *_command(name, folder, port, proxy_port),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    with contextlib.suppress(OSError):
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        writer.close()
                        break
                    await asyncio.sleep(0.1)
            yield port
        finally:
            process.terminate()
            await process.wait()


def _command(name: str, folder: Path, port: int, proxy_port: int) -> list[str]:
    if name == "caddy":
        (folder / "Caddyfile").write_text(
            f"{{\nadmin off\nauto_https off\nstorage file_system {folder}\n}}\n"
            f"http://:{port} {{\nreverse_proxy 127.0.0.1:{proxy_port} {{\nflush_interval -1\n}}\n}}\n"
        )
        return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    site = (Path(__file__).parents[2] / "deploy" / "nginx.conf").read_text()
    lines = [line for line in site.splitlines() if "server replica-" not in line]
    site = "\n".join(lines).replace("listen 8780;", f"listen 127.0.0.1:{port};")
    site = site.replace("upstream context_proxy {", f"upstream context_proxy {{ server 127.0.0.1:{proxy_port};", 1)
    scratch = "".join(f"{one}_temp_path {folder / one};" for one in _SCRATCH)
    site = site.replace("http {", f"http {{ access_log off; {scratch}", 1).replace(
        "worker_processes auto", "worker_processes 1"
    )
    (folder / "nginx.conf").write_text(f"daemon off; pid {folder / 'pid'}; error_log stderr;\n{site}")
    return ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)]
