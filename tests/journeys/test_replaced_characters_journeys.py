"""Characters that an upstream does not take, replaced and counted on every way to it."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.journey import World, call, result


def test_replaced_characters_are_counted_once_in_each_message_in_every_turn(build: Callable[..., World]) -> None:
    world = build(models=[{"match": "m", "sanitise": ["non_bmp"]}])
    response = json.dumps({"status": "success", "data": "🙂🙂", "text": "Two."}, ensure_ascii=False)
    arguments = json.dumps({"say": "🙂"}, ensure_ascii=False)
    messages = [
        {"role": "user", "content": "Hi 🙂"},
        call(1, arguments=arguments),
        result(1, "a 🙂 b 🙂"),
        call(2),
        result(2, response),
    ]
    world.ask({"model": "m", "messages": messages})
    user, called, plain, _, common = world.upstream.last.messages
    note = "[context-proxy: characters shown as \ufffd here, as the upstream does not take them: {}]\n"
    assert user["content"] == f"Hi \ufffd\n{note.format(1)}"
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"say": "\ufffd"}
    assert plain["content"] == f"a \ufffd b \ufffd\n{note.format(2)}"
    assert json.loads(common["content"]) == {
        "status": "success",
        "data": "\ufffd\ufffd",
        "text": note.format(2) + "Two.",
    }
    first = world.upstream.last.messages
    world.ask({"model": "m", "messages": [*messages, {"role": "assistant", "content": "🙂"}, result(2, "x")][:6]})
    assert world.upstream.last.messages[:5] == first
    assert world.upstream.last.messages[5]["content"] == "\ufffd", "no note in the model's own words"
