"""A model's mind that follows a script, for tests with any client and any tools."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from proxy.demo import Call, ChatMessage, Reply, last_user_text, newest_note, newest_results

MARK: Final = "Script step "
_LINE: Final = re.compile(r"^\s*(?:(call|and)\s+([\w.-]+)\s+(\{.*\})|write\s+(\w+)\s+(\S.*?))\s*$", re.MULTILINE)


def scripted(messages: Sequence[ChatMessage]) -> Reply:
    """The next turn of the script in the last user message; without a script, a sentence about what arrived. For tests
    with any client and any tools.

    Every line `call NAME {JSON}` of that message is one turn, in this order; `and NAME {JSON}` adds a call to the same
    turn. `write LANGUAGE TEXT` is a turn that has TEXT in a fenced block, for agents that read their calls from the
    text. Then the model says what it saw. It finds its place in the script from its own newest message.

    >>> scripted([{"role": "user", "content": 'call ls {"path": "."}'}])
    Reply(text='Script step 1', calls=(Call(name='ls', arguments={'path': '.'}),))
    """
    script = _script(last_user_text(messages))
    done = _steps_done(messages)
    if done < len(script):
        return Reply(f"{MARK}{done + 1}{script[done].text}", script[done].calls)
    seen = len(newest_results(messages))
    return Reply(
        f"Done after {done} steps. {len(messages)} messages reached me; the newest tool results have {seen} characters."
    )


def _steps_done(messages: Sequence[ChatMessage]) -> int:
    last_user = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=0)
    step = newest_note(messages[last_user:], MARK)
    return int(step) if step.isdigit() else 0


def _script(text: str) -> list[Reply]:
    turns: list[Reply] = []
    for word, name, arguments, language, written in _LINE.findall(text):
        if language:
            turns.append(Reply(f"\n```{language}\n{written}\n```"))
            continue
        try:
            call = Call(name, json.loads(arguments))
        except ValueError:
            continue  # prose that looks like a call
        if word == "and" and turns:
            turns[-1] = replace(turns[-1], calls=(*turns[-1].calls, call))
        else:
            turns.append(Reply("", (call,)))
    return turns
