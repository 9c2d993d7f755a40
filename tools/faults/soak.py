"""`python -m tools.faults.soak --minutes N --write FILE`: mixed traffic for a long while; the process ends as it began.

Rule: the comparison is between medians under the same load: of the first tenth after the warm-up, and of the last.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import os
import random
import re
import statistics
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.upstream import Connection, Request, as_events

from tools.faults.client_faults import bodies
from tools.faults.graph import graph
from tools.faults.stage import CANARY, Stage, accept, chat, long_text, staged, streamed, whole, with_result
from tools.faults.storage import NAME
from tools.faults.trials import Tried

WARM_UP_SECONDS: Final = 600.0
"""Memory of conversations, models, decisions and artifacts first fills up to its bounds. That takes
some 20 000 requests, which are eight minutes on two shared cores; after that nothing grew in ten more."""
SAMPLE_SECONDS: Final = 5.0
GROWTH: Final = 0.05
"""Allowed growth of a median."""
FEW: Final = 3
"""Threads, files or sockets allowed in addition: with ten of them, one that happens to be open is 10 %."""
CLIENTS: Final = 4
PAUSE_SECONDS: Final = 0.05
"""A client's pause between two requests: the machine is shared."""
_MEASURES: Final = ("memory", "threads", "files", "sockets")
_REFUSAL: Final = json.dumps(
    {
        "error": {
            "message": "This model's maximum context length is 4000 tokens. However, your messages resulted in 5200 "
            "tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
).encode()
_MESSAGE: Final[Mapping[str, Any]] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "usage": {"input_tokens": 9, "output_tokens": 1},
}
_TEXT: Final = {"type": "text", "text": "Done."}
_OUTPUT: Final = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{**_TEXT, "type": "output_text"}]}
_RESPONSE: Final = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [_OUTPUT]}
_ANSWERS: Final[Mapping[bytes, tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]] = {
    b"/v1/messages": (
        {**_MESSAGE, "content": [_TEXT], "stop_reason": "end_turn"},
        [
            {"type": "message_start", "message": _MESSAGE},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ],
    ),
    b"/v1/responses": (
        _RESPONSE,
        [
            {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress", "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": _OUTPUT},
            {"type": "response.completed", "response": _RESPONSE},
        ],
    ),
}
"""The other two wires of events: a whole response, and the events of a streamed one."""
_CHAT: Final = b"/api/chat"
_LINE: Final = {"model": "m", "message": {"role": "assistant", "content": "Done."}, "done": False}
_LAST_LINE: Final = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 1}
_LINES: Final = b"".join(json.dumps(line).encode() + b"\n" for line in (_LINE, {**_LINE, **_LAST_LINE}))
"""Ollama's stream; its last line is as good a whole response."""
_REFUSED_BYTES: Final = 16_000
"""From this many on the upstream refuses requests to its small models."""
_MODELS: Final = 5_000
"""Small models, each with its own name: once a limit is learned, there is no second send."""


@dataclass(frozen=True)
class Sample:
    """The resources of the process at one time."""

    seconds: float
    """Since the warm-up."""
    memory: float
    """Resident, in MB."""
    threads: int
    files: int
    """Open ones that are not sockets."""
    sockets: int


@dataclass(frozen=True)
class Soaked:
    """The result of a soak."""

    minutes: float
    samples: Sequence[Sample]
    sent: Counter[str]
    """Requests, by kind."""
    wrong: Counter[str]
    """Responses that were not as they should be."""

    def medians(self, name: str) -> tuple[float, float]:
        """Medians of one measure: in the first tenth, and in the last."""
        values = [getattr(sample, name) for sample in self.samples]
        tenth = max(1, len(values) // 10)
        return statistics.median(values[:tenth]), statistics.median(values[-tenth:])

    def has_grown(self, name: str) -> bool:
        """Whether one measure ended noticeably above its beginning."""
        begin, end = self.medians(name)
        return end > begin * (1 + GROWTH) and (name == "memory" or end > begin + FEW)

    def tried(self) -> list[Tried]:
        """Rows of the page."""
        promise, what = "Memory, threads, files and sockets end where they began", f"{self.minutes:g} minutes"
        ended = Tried(promise, f"{what} of mixed traffic, {len(self.samples)} samples")
        for name in _MEASURES:
            begin, end = self.medians(name)
            ended.note(f"{name}: {begin:.1f} → {end:.1f}", held=not self.has_grown(name))
        answered = Tried("Every request of a long day is answered as the first", f"{what} of mixed traffic")
        answered.times = self.sent.total()
        answered.lost = [f"{kind}: {count}" for kind, count in self.wrong.items()]
        return [ended, answered]

    def section(self, picture: str) -> str:
        """For the page, in Markdown; `picture` is the address of the graph."""
        sent = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.sent.items()))
        rows = "\n".join(f"| {name} | {_row(self, name)} |" for name in _MEASURES)
        traffic = (
            f"{CLIENTS} clients sent {self.sent.total():,} requests: {sent}. {self.wrong.total():,} got a wrong answer."
        )
        measured = (
            f"Resources are sampled every {SAMPLE_SECONDS:.0f} s after a warm-up of {WARM_UP_SECONDS:.0f} s, in which "
            "memories of bounded size fill up. The table compares the medians of the first and the last tenth of the "
            f"samples. Growth of more than {GROWTH:.0%} is a failure; of threads, files or sockets, only if it is also "
            f"more than {FEW}."
        )
        return f"""## {self.minutes:g} minutes of mixed traffic

{textwrap.fill(traffic, 120, break_on_hyphens=False)}

{textwrap.fill(measured, 120, break_on_hyphens=False)}

| | first tenth | last tenth | most | |
|---|---|---|---|---|
{rows}

![Resident memory over time]({picture})
"""


def _row(soaked: Soaked, name: str) -> str:
    begin, end = soaked.medians(name)
    most = max(getattr(sample, name) for sample in soaked.samples)
    unit = " MB" if name == "memory" else ""
    return f"{begin:.0f}{unit} | {end:.0f}{unit} | {most:.0f}{unit} | {(end - begin) / begin:+.1%}"


async def soak(minutes: float) -> Soaked:
    """Mixed traffic for this long, including the warm-up."""
    sent, wrong, samples = Counter[str](), Counter[str](), list[Sample]()
    begun = time.monotonic()
    seeds = itertools.count()
    async with staged(log={"format": "json", "level": "info"}) as stage:
        stage.upstream.answer = _answer
        stage.upstream.bodies = _Last()
        clients = [asyncio.create_task(_client(stage, number, seeds, sent, wrong)) for number in range(CLIENTS)]
        await asyncio.sleep(WARM_UP_SECONDS)
        while time.monotonic() < begun + 60 * minutes:
            samples.append(_sample(stage.process.pid, time.monotonic() - begun - WARM_UP_SECONDS))
            await asyncio.sleep(SAMPLE_SECONDS)
        for client in clients:
            client.cancel()
        ended = await asyncio.gather(*clients, return_exceptions=True)
    failed = [one for one in ended if not isinstance(one, asyncio.CancelledError)]
    assert not failed, failed
    return Soaked(minutes, samples, sent, wrong)


class _Last(list[bytes]):
    """The last few requests that the upstream got: a soak sends gigabytes."""

    def append(self, body: bytes) -> None:
        del self[:-64]
        super().append(body)


async def _answer(connection: Connection, request: Request) -> None:
    """Respond as a model does; small models have a window that is stated nowhere."""
    if b'"small-' in request.body and len(request.body) > _REFUSED_BYTES:
        await connection.send(whole(400, _REFUSAL))
        return
    path = request.line.split()[1]
    answer, is_stream = _ANSWERS.get(path), re.search(rb'"stream": ?true', request.body) is not None
    if path == _CHAT:
        lines = streamed(_LINES, media_type=b"application/x-ndjson", end=b"\n")
        await connection.send(lines if is_stream else whole(200, _LINES.splitlines()[-1]))
    elif answer is None:
        await accept(connection, request)
    elif is_stream:
        await connection.send(streamed(as_events(answer[1]).body))
    else:
        await connection.send(whole(200, json.dumps(answer[0]).encode()))


async def _client(stage: Stage, number: int, seeds: Iterator[int], sent: Counter[str], wrong: Counter[str]) -> None:
    """Sends one request after another, of kinds in the same order in every run."""
    choose = random.Random(number)
    names, weights = list(_KINDS), [weight for weight, _ in _KINDS.values()]
    while True:
        kind = choose.choices(names, weights)[0]
        is_right = await _KINDS[kind][1](stage, next(seeds))
        sent[kind] += 1
        if not is_right:
            wrong[kind] += 1
        await asyncio.sleep(PAUSE_SECONDS)


async def _small(stage: Stage, seed: int) -> bool:
    return (await stage.ask(chat({"role": "user", "content": f"{CANARY} {seed}"}))).status == 200


async def _streamed(stage: Stage, seed: int) -> bool:
    heard = await stage.ask(chat({"role": "user", "content": str(seed)}, stream=True))
    return heard.is_whole and b"[DONE]" in heard.body


async def _cut(stage: Stage, seed: int) -> bool:
    """A result that is cut; the artifact is read, whole and searched."""
    heard = await stage.ask(with_result(long_text(seed, lines=2_000 + seed % 5 * 1_000)))
    own = f"{CANARY} {seed} line".encode()
    found = [match[0].decode() for body in stage.upstream.bodies if own in body for match in NAME.finditer(body)]
    for query in ("", "?grep=value+77", "?lines=10-20", "?stat"):
        if found:
            read = await stage.get(f"/artifacts/{found[-1]}{query}")
            if read.status != 200:
                return False
    return heard.status == 200 and bool(found)


async def _refused(stage: Stage, seed: int) -> bool:
    """A conversation too long for an unknown model; a second send succeeds."""
    turns = [{"role": "user", "content": f"{CANARY} {seed} {n} " + "word " * 400} for n in range(10)]
    body = json.dumps({"model": f"small-{seed % _MODELS}", "messages": turns}).encode()
    return (await stage.ask(body)).status == 200


async def _messages(stage: Stage, seed: int) -> bool:
    call = {"type": "tool_use", "id": f"toolu_{seed}", "name": "bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": _result(seed)}
    turns = [("user", f"{CANARY} {seed}"), ("assistant", [call]), ("user", [result])]
    messages = [{"role": role, "content": content} for role, content in turns]
    return await _on_wire(stage, seed, "/v1/messages", {"max_tokens": 100, "messages": messages}, b"message_stop")


async def _responses(stage: Stage, seed: int) -> bool:
    call = {"type": "function_call", "call_id": f"call_{seed}", "name": "bash", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": _result(seed)}
    items = [{"type": "message", "role": "user", "content": f"{CANARY} {seed}"}, call, result]
    return await _on_wire(stage, seed, "/v1/responses", {"input": items}, b"response.completed")


async def _ollama(stage: Stage, seed: int) -> bool:
    call = {"function": {"name": "bash", "arguments": {}}}
    messages = [
        {"role": "user", "content": f"{CANARY} {seed}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "bash", "content": _result(seed)},
    ]
    return await _on_wire(stage, seed, _CHAT.decode(), {"messages": messages}, b'"done_reason"')


def _result(seed: int) -> str:
    """One in two is cut."""
    return long_text(seed, lines=2_000 if seed % 2 else 100)


async def _on_wire(stage: Stage, seed: int, path: str, members: Mapping[str, Any], end: bytes) -> bool:
    """A request of another wire; two in four are streamed, and one in four is refused and sent again."""
    is_stream = seed % 4 > 1
    model = f"small-{seed % _MODELS}" if seed % 4 == 1 else "m"
    body = json.dumps({"model": model, "stream": is_stream, **members}).encode()
    heard = await stage.ask(body, path=path)
    return heard.status == 200 and heard.is_whole and (end if is_stream else b"Done.") in heard.body


async def _leaves(stage: Stage, seed: int) -> bool:
    """A client that leaves before the response, sometimes before its request is complete."""
    body = chat(stream=True)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    _, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    writer.write((head + body)[: len(head) + seed % (len(body) + 1)])
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    writer.close()
    return True


@functools.cache
def _short_bodies() -> list[bytes]:
    return [body for body in bodies().values() if len(body) < 500_000]


async def _hostile(stage: Stage, seed: int) -> bool:
    short = _short_bodies()
    return (await stage.ask(short[seed % len(short)])).status in (200, 400, 413, 422)


_KINDS: Final[dict[str, tuple[int, Callable[[Stage, int], Awaitable[bool]]]]] = {
    "small": (24, _small),
    "streamed": (22, _streamed),
    "on `/v1/messages`": (8, _messages),
    "on `/v1/responses`": (8, _responses),
    "on `/api/chat`": (8, _ollama),
    "cut and read": (10, _cut),
    "refused and sent again": (8, _refused),
    "leaving": (6, _leaves),
    "hostile": (6, _hostile),
}
"""Each with its share of a hundred requests."""


def _sample(pid: int, seconds: float) -> Sample:
    place = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line)
    kinds = Counter[bool]()
    for entry in (place / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            kinds[os.readlink(entry).startswith("socket:")] += 1
    memory = int(status["VmRSS"].split()[0]) / 1_000
    return Sample(seconds, memory, int(status["Threads"]), kinds[False], kinds[True])


def written(soaked: Soaked, page: Path) -> str:
    """The section for a page; its graph is written next to it."""
    picture = page.with_name(f"{page.stem}-memory.svg")
    picture.write_text(graph([(one.seconds / 60, one.memory) for one in soaked.samples], "minutes", "MB resident"))
    return soaked.section(picture.name)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section, and its graph beside it")
    options = parser.parse_args()
    if 60 * options.minutes <= WARM_UP_SECONDS:
        parser.error(f"it takes more than the {WARM_UP_SECONDS:.0f} s of warm-up")
    soaked = asyncio.run(soak(options.minutes))
    if options.write:
        options.write.write_text(written(soaked, options.write))
    lost = [f"{line.promise}: {what}" for line in soaked.tried() for what in line.lost]
    print("\n".join([*(f"{name}: {_row(soaked, name)}" for name in _MEASURES), *lost]))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
