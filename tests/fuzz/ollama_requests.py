"""Requests of Ollama's own API, chats and prompts, with whatever clients put into them."""

from __future__ import annotations

import base64
from typing import Any, Final

from fuzz.mutations import damaged, mutated, spelled
from fuzz.requests import RequestRules, without
from hypothesis import strategies as st
from support.media_samples import PNG
from support.upstream.ollama import Refused, check
from support.valid_ollama import complaints

from proxy.wire.ollama import OLLAMA, OLLAMA_PROMPTS

_IMAGE: Final = base64.b64encode(PNG).decode()
_TOOLS: Final = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
_TEXTS: Final = st.sampled_from(["", "Go.", "Look at it. " * 300, "line\n" * 900, f"data:image/png;base64,{_IMAGE}"])
_MEMBERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.booleans(),
        "tools": st.sampled_from([_TOOLS, []]),
        "options": st.sampled_from([None, {"num_ctx": 2_048}, {"num_predict": 500, "num_ctx": 4_096}, {"num_ctx": -1}]),
        "format": st.sampled_from(["json", {"type": "object", "description": "x " * 900}]),
        "think": st.sampled_from([True, "low"]),
        "keep_alive": st.sampled_from([0, "5m"]),
    },
)


@st.composite
def _exchanges(draw: Any) -> list[dict[str, Any]]:
    """A message of a model with calls, and their results, named in one way or none."""
    has_ids, cites, names = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    calls, results = [], []
    for place in range(draw(st.integers(0, 3))):
        found = {"id": f"call_{place}"} if has_ids else {}
        calls.append({**found, "function": {"name": "read", "arguments": {"path": "a" * draw(st.integers(0, 900))}}})
        cited = {"tool_call_id": f"call_{place}" if has_ids else f"other_{place}"} if cites else {}
        named = {"tool_name": "read"} if names else {}
        images = {"images": [_IMAGE]} if draw(st.integers(0, 9)) == 9 else {}
        results.append({"role": "tool", "content": draw(_TEXTS), **cited, **named, **images})
    reply: dict[str, Any] = {"role": "assistant"}
    reply |= {"content": draw(_TEXTS)} if not calls or draw(st.booleans()) else {}
    reply |= {"thinking": draw(_TEXTS)} if draw(st.booleans()) else {}
    reply |= {"tool_calls": calls} if calls else {}
    question = [{"role": "user", "content": draw(_TEXTS)}] if draw(st.booleans()) else []
    return [reply, *results, *question]


@st.composite
def _requests(draw: Any) -> dict[str, Any]:
    head = [{"role": "system", "content": "Be careful."}] if draw(st.booleans()) else []
    image = {"images": [_IMAGE]} if draw(st.booleans()) else {}
    rest = [message for exchange in draw(st.lists(_exchanges(), max_size=6)) for message in exchange]
    messages = {"messages": [*head, {"role": "user", "content": "Go.", **image}, *rest]}
    members = {"model": draw(st.sampled_from(["qwen3:8b", ""])), **draw(_MEMBERS)}
    return members | messages if draw(st.booleans()) else messages | members


_PROMPT_MEMBERS: Final = st.fixed_dictionaries(
    {"model": st.sampled_from(["qwen3:8b", ""])},
    optional={
        "prompt": _TEXTS,
        "images": st.sampled_from([None, [], [_IMAGE], [_IMAGE, _IMAGE]]),
        "system": st.sampled_from(["", "Be brief.", "Be brief. " * 900]),
        "raw": st.booleans(),
        "suffix": st.sampled_from(["", "return x"]),
        "context": st.sampled_from([None, [], [1, 2, 3]]),
        "template": st.sampled_from(["", "{{ .Prompt }}"]),
    },
)


@st.composite
def _prompts(draw: Any) -> dict[str, Any]:
    members, others = draw(_PROMPT_MEMBERS), draw(_MEMBERS)
    return {**members, **others} if draw(st.booleans()) else {**others, **members}


def _refused(body: Any) -> list[str]:
    try:
        check(body)
    except Refused as refused:
        return [str(refused)]
    return []


CASES: Final = damaged(spelled(mutated(_requests())))
RULES: Final = RequestRules(OLLAMA, "messages", without(complaints))
PROMPTS: Final = damaged(spelled(mutated(_prompts())))
PROMPT_RULES: Final = RequestRules(OLLAMA_PROMPTS, "prompt", without(_refused))
