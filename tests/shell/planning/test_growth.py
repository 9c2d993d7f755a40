"""The work for a request grows with its items, of whatever kind, and not with their square."""

import base64
import json
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import pytest
from support.planners import planner
from support.work import bytecodes_of

from proxy.core.notices import UNNAMED
from proxy.core.overflow import Terms
from proxy.wire import WIRES

ITEMS = 40
"""In the smallest request; what is done once for each request must not hide a square."""
ENDS = {"chat": b"/chat/completions", "messages": b"/v1/messages", "responses": b"/responses", "ollama": b"/api/chat"}
"""Of the paths of the wires by which the kinds begin."""
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WORDS = "some words of a text " * 4
AMPLE = 1_000_000_000
"""Tokens of a window."""
A_FEW = 2_000
"""Bytecodes by which the work of a function may differ: how much is cut goes in steps."""


def each(count, made):
    """`made`: a number that names a call → items."""
    return list(chain.from_iterable(made(str(number)) for number in range(count)))


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **members):
    return {"role": "assistant", "content": content, **members}


def text(kind="text"):
    return {"type": kind, "text": WORDS}


def call(name):
    return {"id": name, "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def chat_result(name, content=WORDS):
    return {"role": "tool", "tool_call_id": name, "content": content}


def image(url=f"data:image/png;base64,{PNG}"):
    return {"type": "image_url", "image_url": {"url": url}}


def block():
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def use(name):
    return {"type": "tool_use", "id": name, "name": "ls", "input": {}}


def result(name, content=WORDS):
    return {"type": "tool_result", "tool_use_id": name, "content": content}


def function_call(name):
    return {"type": "function_call", "call_id": name, "name": "ls", "arguments": "{}"}


def output(name, content=WORDS):
    return {"type": "function_call_output", "call_id": name, "output": content}


def named(count, make):
    return each(count, lambda name: [make(name)])


TASK = user("the task")
KINDS: dict[str, Callable[[int], Any]] = {
    "chat messages": lambda n: [TASK, *repeat(user(WORDS), n)],
    "chat answers": lambda n: [TASK, *repeat(assistant(WORDS), n), user("and now?")],
    "chat texts": lambda n: [user([*repeat(text(), n)])],
    "chat images": lambda n: [user([*repeat(image(), n)])],
    "chat images of a result": lambda n: [
        TASK,
        assistant(None, tool_calls=[call("a")]),
        chat_result("a", [image()] * n),
    ],
    "chat exchanges": lambda n: [TASK, *each(n, lambda a: [assistant(None, tool_calls=[call(a)]), chat_result(a)])],
    "chat results": lambda n: [TASK, assistant(None, tool_calls=named(n, call)), *named(n, chat_result)],
    "chat system texts": lambda n: [TASK, *[{"role": "system", "content": WORDS}, user(WORDS)] * n],
    "messages": lambda n: [TASK, *repeat(user(WORDS), n)],
    "messages answers": lambda n: [TASK, *repeat(assistant(WORDS), n), user("and now?")],
    "messages texts": lambda n: [user([*repeat(text(), n)])],
    "messages images": lambda n: [user([*repeat(block(), n)])],
    "messages images of a result": lambda n: [TASK, assistant([use("a")]), user([result("a", [block()] * n)])],
    "messages exchanges": lambda n: [TASK, *each(n, lambda a: [assistant([use(a)]), user([result(a)])])],
    "messages results": lambda n: [TASK, assistant(named(n, use)), user(named(n, result))],
    "messages results and words": lambda n: [
        TASK,
        assistant(named(n, use)),
        user(each(n, lambda a: [result(a), text()])),
    ],
    "messages system texts": lambda n: [
        TASK,
        *[{"role": "system", "content": WORDS}, assistant(WORDS), user(WORDS)] * n,
    ],
    "messages system texts between users": lambda n: [
        TASK,
        *[{"role": "system", "content": WORDS}, user(WORDS)] * n,
        assistant("."),
        TASK,
    ],
    "messages thinking": lambda n: [
        TASK,
        assistant([{"type": "thinking", "thinking": WORDS, "signature": "s"}] * n),
        user("and now?"),
    ],
    "responses messages": lambda n: [TASK, *repeat(user(WORDS), n)],
    "responses texts": lambda n: [user([*repeat(text("input_text"), n)])],
    "responses images": lambda n: [user([{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}] * n)],
    "responses exchanges": lambda n: [TASK, *each(n, lambda a: [function_call(a), output(a)])],
    "responses results": lambda n: [TASK, *named(n, function_call), *named(n, output)],
    "responses reasoning": lambda n: [
        TASK,
        *named(n, lambda a: {"type": "reasoning", "id": a, "summary": []}),
        user("and now?"),
    ],
    "responses developer texts": lambda n: [TASK, *[{"role": "developer", "content": WORDS}, TASK] * n],
    "ollama messages": lambda n: [TASK, *repeat(user(WORDS), n)],
    "ollama images": lambda n: [{**TASK, "images": [PNG] * n}],
    "ollama empty images": lambda n: [{**TASK, "images": [""] * n}],
    "ollama results": lambda n: [
        TASK,
        assistant("", tool_calls=[{"function": {"name": "ls", "arguments": {}}}] * n),
        *repeat({"role": "tool", "content": WORDS}, n),
    ],
}


def work(kind, count, *, is_cut):
    wire = WIRES[ENDS[kind.split()[0]]]
    name = wire.parse(b'{"messages":[],"input":[]}', None, 0).shape.messages
    body = json.dumps({"model": "m", name: KINDS[kind](count)}).encode()

    def planned(window):
        found = planner(window).made(wire, wire.parse(body, None, 0), "", Terms(UNNAMED, None), {})
        found.body()
        return found

    whole = planned(AMPLE)
    window = max(1_000, whole.tokens_after * 2 // 3) if is_cut else AMPLE
    return bytecodes_of(lambda: planned(window))


@pytest.mark.parametrize("is_cut", [False, True], ids=["as it came", "cut"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_work_grows_with_the_items_and_not_with_their_square(kind, is_cut):
    once, twice, four_times = (work(kind, ITEMS * times, is_cut=is_cut) for times in (1, 2, 4))
    growth = {
        function: (once[function], twice[function], count)
        for function, count in four_times.items()
        if count - twice[function] > 2.8 * (twice[function] - once[function]) + A_FEW
    }
    assert not growth
