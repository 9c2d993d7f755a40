"""Content cut out of real agent conversations comes back byte for byte, over every access path.

`AGENT_RUNS=FOLDER` names files `*.jsonl.gz` with a conversation a line: `{"messages": […], "tools": […] | null}`.
`AGENT_RUNS_EVERY=1` takes all of them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.journey import KEY, World

FOLDER = os.environ.get("AGENT_RUNS", "")
EVERY = int(os.environ.get("AGENT_RUNS_EVERY", "40"))
WINDOW_TOKENS = 16_000
RANGE_BYTES = 50_000
NAME = re.compile(r"tool_[A-Za-z0-9_-]+_[0-9a-f]{16}\.[a-z0-9]+")


def runs() -> Iterator[dict[str, Any]]:
    for file in sorted(Path(FOLDER).glob("*.jsonl.gz")):
        with gzip.open(file, "rt") as lines:
            yield from (json.loads(line) for number, line in enumerate(lines) if number % EVERY == 0)


def ways_back(world: World, name: str) -> Iterator[bytes]:
    """The artifact by path, by address, by ranges of bytes and by pages of lines."""
    yield (world.folder / "tool-output" / name).read_bytes()
    address = world.proxies[0].removesuffix("/v1") + f"/artifacts/{name}"

    def got(query: str = "", **headers: str) -> httpx.Response:
        answer = world.client.get(address + query, headers={"authorization": f"Bearer {KEY}", **headers})
        assert answer.is_success, answer.text
        return answer

    whole = got().content
    yield whole
    yield b"".join(got(range=f"bytes={at}-{at + RANGE_BYTES - 1}").content for at in range(0, len(whole), RANGE_BYTES))
    pages, following = [], "1-"
    while following:
        header, _, page = got(f"?lines={following}").content.partition(b"\n")
        pages.append(page)
        found = re.search(rb"lines=(\S+)\]$", header)
        following = found[1].decode() if found else ""
    yield b"".join(pages)


def texts_of(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        yield from (part["text"] for part in parts if isinstance(part.get("text"), str))


@pytest.mark.skipif(not FOLDER, reason="AGENT_RUNS names no folder with conversations")
def test_every_cut_of_real_runs_comes_back_by_each_way(build: Any) -> None:
    world = build(WINDOW_TOKENS, artifacts={"max_bytes": 2**34})
    turns = cuts = digests = 0
    checked: set[str] = set()
    for run in runs():
        messages, tools = run["messages"], {"tools": run["tools"]} if run.get("tools") else {}
        originals = {_digest(text): text.encode("utf-8", "surrogatepass") for text in texts_of(messages)}
        for prefix in (messages[:at] for at, message in enumerate(messages) if at and message["role"] == "assistant"):
            world.ask({"model": "m", "messages": prefix, **tools})
            turns += 1
        named = {name for request in world.upstream.sent for name in NAME.findall(request.body.decode())}
        world.upstream.sent.clear()
        for name in (named & world.kept.keys()) - checked:
            checked.add(name)
            contents = list(ways_back(world, name))
            assert len(set(contents)) == 1, name
            digest = name.rpartition(".")[0][-16:]
            assert hashlib.sha256(contents[0]).hexdigest()[:16] == digest
            if digest in originals:
                assert contents[0] == originals[digest]
                cuts += 1
            else:
                assert all(message in messages for message in json.loads(contents[0])["messages"])
                digests += 1
    unseen = {line["artifact"] for line in world.log("tool_output_truncated")} - checked
    print(f"{turns} turns, {cuts} texts that were cut, {digests} notes of messages left out, {len(unseen)} unseen")
    assert cuts
    assert digests
    assert not unseen


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
