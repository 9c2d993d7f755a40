"""A client of `/v1/messages` or `/v1/responses` at work: what it saw, what reached the model, and the judgement.

Rule: the model takes three turns and no more in one window (tests/support/upstream). Directly, the row shows what
becomes of the client; it fails only if nothing was refused. Through the proxy it fails for each of: no good end, a
refusal that the client sees, a third send in a turn, a body that is not valid, a cut where all would have fitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from support.live_proxy import running
from support.upstream import Face, OverAtStep, ScriptedModel, Sent, SocketServer, worker, works_in

from tools.e2e.clients import end_all_at
from tools.e2e.tap import TURN_HEADER, Exchange, Tap
from tools.e2e.wire_clients import WireClient

STEPS: Final = 8
REFUSED_TURN: Final = 4
MOST_SECONDS: Final = 90
"""For one run; the slowest that ends by itself takes a third of it."""
LOG_LINES: Final = 400
"""18 KB: under what Claude Code puts into a file (30 000 characters), over what Codex leaves whole (10 000 bytes)."""
MOST_SENDS: Final = 2
SURELY_FITS: Final = 0.6
"""Share of the limit: the rest may be reserved for the reply, and for the error of an estimate."""
FITTED: Final = "x-context-proxy-tokens"
"""On each answer to a request that the proxy has looked into."""


@dataclass(frozen=True)
class WireRun:
    """How one run went."""

    exit_code: int | None
    """None: it was ended for its time."""
    output: str
    seconds: float
    exchanges: tuple[Exchange, ...]
    """Exchanges of its API: what requests a response."""
    model: ScriptedModel
    limit: int | None = None
    """Tokens, once something was refused."""

    @property
    def ended_well(self) -> bool:
        return self.exit_code == 0 and f"Done after {STEPS} steps." in self.output

    @property
    def refusals_seen(self) -> int:
        return sum(exchange.is_refused for exchange in self.exchanges)

    @property
    def summaries(self) -> int:
        """Requests of the client's own compaction that were answered."""
        return sum(b"<summary>" in exchange.received for exchange in self.exchanges)

    @property
    def most_sends(self) -> int:
        """Most sends of one client request."""
        return max(Counter(_turn_of(seen) for seen in self.model.sent).values(), default=0)

    @property
    def cuts(self) -> int:
        """Turns whose request does not begin with the one before it."""
        return len(self._cut_turns)

    @property
    def needless_cuts(self) -> int:
        """Cuts where the request before it and all that the client has added would surely have fitted."""
        bodies = {exchange.number: exchange.body for exchange in self.exchanges}
        needless = 0
        for early, late in self._cut_turns:
            before, after = bodies.get(_turn_of(early), {}), bodies.get(_turn_of(late), {})
            if _begins_with(_items(early.face, after), _items(early.face, before)):  # else the client itself began anew
                whole = early.tokens + early.face.count(after) - early.face.count(before)
                needless += whole < SURELY_FITS * (self.limit or 0)
        return needless

    @property
    def _cut_turns(self) -> list[tuple[Sent, Sent]]:
        turns = [sent for sent in self.model.sent if works_in(sent) and not sent.refused]
        items = [_items(sent.face, sent.json) for sent in turns]
        return [
            (turns[number - 1], turns[number])
            for number in range(1, len(turns))
            if not _begins_with(items[number], items[number - 1])
        ]

    @property
    def last_words(self) -> str:
        """The most informative of the client's last lines."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        reported = [line for line in lines if "error" in line.lower() or "too long" in line]
        return escape((reported or lines or [""])[-1][:110])

    @property
    def proves_something(self) -> bool:
        """Whether a direct run was what it is for: valid requests of which one was too long."""
        return self.model.refusals > 0 and not self.model.complaints

    @property
    def directly(self) -> str:
        """A cell of the table."""
        if self.model.complaints:
            return f"[red]sends what is not valid[/]: {escape(self.model.complaints[0])}"
        if not self.model.refusals:
            return f"[red]nothing was refused[/], {self.seconds:.0f} s: {self.last_words}"
        saw = f"{self.refusals_seen} refusals, {self.seconds:.0f} s"
        if self.ended_well:
            return f"[yellow]compacted by itself[/], {self.summaries} times: {saw}"
        how = f"exit {self.exit_code}" if self.exit_code is not None else f"no end after {MOST_SECONDS} s"
        return f"[red]died[/], {how}, {saw}: {self.last_words}"

    @property
    def faults(self) -> list[str]:
        """Why a run through the proxy has failed; none if it is as it should be."""
        found = []
        if not self.ended_well:
            found.append(f"died: {self.last_words}")
        if self.refusals_seen:
            found.append(f"{self.refusals_seen} refusals seen")
        if self.most_sends > MOST_SENDS:
            found.append(f"{self.most_sends} sends for one request")
        if self.model.complaints:
            found.append(f"{len(self.model.complaints)} complaints, the first: {escape(self.model.complaints[0])}")
        if not self.model.refusals:
            found.append("the model never refused")
        if self.needless_cuts:
            found.append(f"{self.needless_cuts} cuts where all would have fitted")
        return found

    @property
    def is_passed_through(self) -> bool:
        """Whether the proxy has looked into nothing."""
        return not any(FITTED in exchange.headers for exchange in self.exchanges)

    @property
    def proxied(self) -> str:
        """A cell of the table."""
        how = f"{self.seconds:.0f} s"
        if self.faults and self.is_passed_through:
            saw = f"{self.refusals_seen} refusals seen, {'ended well' if self.ended_well else 'died'}"
            return f"[red]passed through, not fitted[/]: {saw}, {how}"
        return f"[red]{'; '.join(self.faults)}[/], {how}" if self.faults else f"[green]ended well[/], {how}"

    @property
    def sends(self) -> str:
        """A cell of the table: what reached the model."""
        sizes = [sent.tokens for sent in self.model.sent]
        return (
            f"{len(self.exchanges)} requests, {len(sizes)} sends, {self.model.refusals} refused, {self.cuts} cuts; "
            f"limit {self.limit}, largest {max(sizes, default=0)}"
        )


async def work(client: WireClient, *, proxied: bool) -> WireRun:
    """One run in a folder and a home of its own."""
    rule = OverAtStep(client.refusal, REFUSED_TURN, is_cut_by="truncation" if client.refusal == "openai" else "")
    model = worker(rule, steps=STEPS)
    async with contextlib.AsyncExitStack() as stack:
        kept = tempfile.TemporaryDirectory(prefix="context-proxy-e2e-", ignore_cleanup_errors=True)
        place = Path(stack.enter_context(kept))
        upstream = await stack.enter_async_context(SocketServer(model))
        target = await stack.enter_async_context(_target(place, upstream.port, proxied=proxied))
        tap = await stack.enter_async_context(Tap(target))
        begun = time.monotonic()
        exit_code, output = await _run(client, place, tap.root)
        seconds = time.monotonic() - begun
    requests = tuple(e for e in tap.exchanges if e.method == "POST" and e.path == client.path)
    return WireRun(exit_code, output, seconds, requests, model, rule.limit)


@contextlib.asynccontextmanager
async def _target(place: Path, upstream_port: int, *, proxied: bool) -> AsyncIterator[str]:
    if not proxied:
        yield f"http://127.0.0.1:{upstream_port}"
        return
    manager = running(place / "proxy", upstream_port=upstream_port)  # knows no window: it learns it from a refusal
    proxy = await asyncio.to_thread(manager.__enter__)
    try:
        yield f"http://127.0.0.1:{proxy.port}"
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


async def _run(client: WireClient, place: Path, root: str) -> tuple[int | None, str]:
    folder, home = place / "work", place / "home"
    folder.mkdir()
    home.mkdir()
    for number in range(STEPS):
        lines = (f"build {number} line {line}: {line * 7919 % 10007} took {line} ms\n" for line in range(LOG_LINES))
        (folder / f"log-{number}.txt").write_text("".join(lines))
        (folder / f"picture-{number}.png").write_bytes(_picture(number))
    (folder / "notes.txt").write_text("These logs are of one night.\n")
    process = await asyncio.create_subprocess_exec(
        *client.command,
        cwd=folder,
        env={**_environment(home, root), **client.configured(home, root)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(MOST_SECONDS):
            output, _ = await process.communicate()
        return process.returncode, output.decode(errors="replace")
    except TimeoutError:
        return None, f"no end after {MOST_SECONDS} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        end_all_at(home)
        await process.wait()


def _environment(home: Path, root: str) -> dict[str, str]:
    """A base URL and a key, without the variables of the user who runs this."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "ANTHROPIC_BASE_URL": root,
        "ANTHROPIC_API_KEY": "sk-ant-e2e",
        "OPENAI_BASE_URL": f"{root}/v1",
        "OPENAI_API_KEY": "sk-e2e",
    }


def _picture(number: int) -> bytes:
    """A PNG of one pixel, another one for each number."""

    def part(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(bytes((0, number, number, number)))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", pixel) + part(b"IEND", b"")


def _turn_of(sent: Sent) -> int:
    """The number of the client's request that a request to the model serves."""
    return int(sent.headers.get(TURN_HEADER.encode(), 0))


def _items(face: Face, body: Mapping[str, Any]) -> list[str]:
    """Messages or items, each in one spelling: without `cache_control`, which moves, and with a text as a list."""
    return [json.dumps(_plain(item), sort_keys=True) for item in face.items(body)]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    found = {name: _plain(inner) for name, inner in value.items() if name != "cache_control"}
    if "role" in found and isinstance(found.get("content"), str):
        found["content"] = [{"type": "text", "text": found["content"]}]
    return found


def _begins_with(late: list[str], early: list[str]) -> bool:
    return late[: len(early)] == early or not _overlap(late, early)


def _overlap(late: list[str], early: list[str]) -> bool:
    """Whether they are of one conversation; where the server holds it, each request has new items alone."""
    return bool(set(early) & set(late))
