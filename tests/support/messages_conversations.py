"""Generators of conversations of the Messages API: parallel calls, results in any order, media in them, thoughts,
system texts in the middle, marks for a cache, compactions, and blocks of unknown types."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from support.shuffled import shuffled
from support.strategies import SHORT_TEXTS, TEXTS, is_enough

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a page"}, "title": "t"}
MARK = {"cache_control": {"type": "ephemeral"}}


def text(value: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **members}


def use(number: int, name: str = "Read", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def result(number: int, content: Any, **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content, **members}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


NON_EMPTY = TEXTS.map(lambda text: text if text.strip() else f"{text}words")
SHORT = SHORT_TEXTS.map(lambda text: text if text.strip() else f"{text}words")
RESULTS = st.one_of(
    NON_EMPTY,
    NON_EMPTY,
    st.lists(st.one_of(NON_EMPTY.map(text), st.just(IMAGE), st.just(DOCUMENT)), min_size=1, max_size=3),
)
"""Results of tools: a string or blocks."""
ASKED = st.one_of(NON_EMPTY, st.lists(st.one_of(NON_EMPTY.map(text), st.just(IMAGE)), min_size=1, max_size=3))


def _exchanges(draw: Any, first: int) -> list[dict[str, Any]]:
    count = draw(st.sampled_from([1, 1, 1, 2, 6]))
    blocks: list[dict[str, Any]] = []
    if draw(st.integers(0, 3)) == 0:
        blocks.append({"type": "thinking", "thinking": draw(SHORT_TEXTS), "signature": f"sig{first}=="})
    if draw(st.booleans()):
        blocks.append(text(draw(NON_EMPTY)))
    numbers = list(range(first, first + count))
    blocks += [use(number, path=draw(SHORT_TEXTS)) for number in numbers]
    results: list[dict[str, Any]] = [result(number, draw(RESULTS)) for number in shuffled(draw, numbers)]
    match draw(st.integers(0, 7)):
        case 0:
            results.append(text("<system-reminder>Mind the plan.</system-reminder>"))
        case 1:
            results.append(IMAGE)
        case 2:
            results.append(text(draw(SHORT)))
        case 3:
            results[0] = {**results[0], "is_error": True, "unknown_member": [1, 2]}
    found = [assistant(blocks), user(results)]
    if draw(st.integers(0, 4)) == 0:
        found += [system(f"Plan mode is on, {one}.") for one in range(draw(st.sampled_from([1, 1, 2, 11])))]
    return found


def _marked(messages: list[dict[str, Any]]) -> None:
    """The last block of the last message, as agents mark it."""
    last = messages[-1]
    blocks = [text(last["content"])] if isinstance(last["content"], str) else list(last["content"])
    blocks[-1] = {**blocks[-1], **MARK}
    messages[-1] = {**last, "content": blocks}


@st.composite
def histories(draw: Any) -> list[dict[str, Any]]:
    """Valid ones, as agents send them."""
    found: list[dict[str, Any]] = []
    turns = draw(st.integers(1, 3))
    for turn in range(turns):
        found.append(user(draw(ASKED)))
        if draw(st.integers(0, 5)) == 0:
            found.append(system("Answer briefly."))
        for _ in range(draw(st.integers(1 if found[-1]["role"] == "system" else 0, 3))):
            if found[-1]["role"] == "system" or not is_enough(found):
                found += _exchanges(draw, len(found) * 100)
        if draw(st.integers(0, 3)) == 0 and len(found) < 20:
            for number in range(draw(st.integers(5, 30))):
                first = len(found) * 100
                found += [assistant([use(first)]), user([result(first, f"a line of output {number:05}\n" * 30)])]
        if turn < turns - 1:
            if found[-1]["role"] == "system" or draw(st.booleans()) or found[-1]["content"] == found[0]["content"]:
                found.append(assistant([text(draw(NON_EMPTY))]))
            if found[-1]["role"] == "assistant" and draw(st.integers(0, 5)) == 0:
                found[-1]["content"].insert(0, {"type": "compaction", "content": "What happened so far."})
    if found[-1]["role"] == "user" and draw(st.booleans()):
        _marked(found)
    return found


def body_of(messages: list[Any], **members: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 1000, "messages": messages, **members}


def spelled(value: Any) -> bytes:
    """With blanks where a careful reader has to keep them."""
    return json.dumps(value, separators=(", ", " : ")).encode()
