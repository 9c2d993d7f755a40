"""An agent that has neither a shell nor a file reader, and a model that knows nothing but what it reads."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from support.answer_shapes import understood
from support.journey import KEY, call, result
from support.upstream import Call, Reply, thinking

SIZE = 5_000_000
TOOLS = [{"type": "function", "function": {"name": "fetch_page", "parameters": {"type": "object", "properties": {}}}}]
QUESTION = "Which courier took the parcel of order 771-234, and what did they note two lines below?"
_NOTICED = re.compile(r'read_artifact\(id="(?P<id>[^"]+)", lines="\d+-\d+"\)')
_HIT = re.compile(r"^(\d+):.*order 771-234\b.*courier (\w+)", re.MULTILINE)


def haystack() -> str:
    """Five megabytes of a log whose middle holds the answer."""
    chance = random.Random(7)
    couriers = ["Ada", "Bela", "Cem", "Dana"]
    lines, size = [], 0
    while size < SIZE:
        number = f"{chance.randrange(100, 999)}-{chance.randrange(300, 999)}"
        lines.append(f"12:00:{len(lines) % 60:02} order {number} handed to courier {chance.choice(couriers)}")
        size += len(lines[-1]) + 1
    middle = len(lines) // 2
    lines[middle] = "12:00:00 order 771-234 handed to courier Zoltan"
    lines[middle + 2] = "12:00:02 note: the bell is broken, knock"
    return "\n".join(lines)


def curious(messages: Sequence[dict[str, Any]]) -> Reply:
    """Reads the notice, does what it says with a search, then reads around the hit."""
    newest = str(messages[-1]["content"])
    if (note := re.search(r"note: (.*)", newest)) is not None:
        return Reply(f"They noted: {note[1]}")
    if (hit := _HIT.search(newest)) is not None:
        name = re.search(r"tool_fetch_page_\w+\.txt", newest)[0]  # type: ignore[index]
        lines = f"{hit[1]}-{int(hit[1]) + 2}"
        return Reply(f"Courier {hit[2]}.", (Call("read_artifact", {"id": name, "lines": lines}),))
    if (noticed := _NOTICED.search(newest)) is not None:
        return Reply("", (Call("read_artifact", {"id": noticed["id"], "grep": r"order 771-234\b", "context": 0}),))
    return Reply("I cannot find it.")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("window_tokens", [8_000, 128_000])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_needle_in_five_megabytes_is_found_in_three_rounds(
    language: str, window_tokens: int, stream: bool, build: Any
) -> None:
    world = build(window_tokens, says=thinking(curious), language=language)
    content = haystack()
    assert len(content) >= SIZE
    messages = [{"role": "user", "content": QUESTION}, call(1, "fetch_page"), result(1, content)]
    answer = world.ask({"model": "m", "messages": messages, "tools": TOOLS, "stream": stream})
    reported = understood(answer.content)["message"] if stream else answer.json()["choices"][0]["message"]
    assert reported["content"] == "Courier Zoltan.\n\nThey noted: the bell is broken, knock"
    assert not reported.get("tool_calls")
    assert len(world.upstream.sent) <= 4
    assert world.logged("request_done")[0]["retrieval_rounds"] <= 3
    assert [kept for kept in world.kept.values() if kept.decode() == content], "the whole is kept, byte for byte"
    assert json.dumps(KEY) not in world.log_text
    assert "Zoltan" not in world.log_text
