"""Results that are JSON, cut in every way and on every API: some upstreams parse a result that begins like JSON, and
refuse the request, in this and every later turn, if it is none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chat_as import SPELLED
from support.strategies import budgets, exchange, pipeline, system, user

from proxy.core.compaction import Pipeline, plan
from proxy.core.conversation import TOOL_ROLES, Conversation, Size
from proxy.core.notices import quoted
from proxy.core.text import Direction, ExcerptLimits
from proxy.core.truncation import Sanitise, SanitiseText
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA
from proxy.wire.responses import RESPONSES

WIRES = {"chat": CHAT_COMPLETIONS, "messages": MESSAGES, "responses": RESPONSES, "ollama": OLLAMA}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["an error: failed\n" * 40, "x" * 900, "名前🙂\x00" * 50, '{"q": [', "[context-proxy: 1"]),
    st.text(max_size=20),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.sampled_from(["status", "data", "text", "rows", "context", "a\n b"]), inner, max_size=5),
    ),
    max_leaves=8,
)


@st.composite
def results(draw: Any) -> str:
    """JSON as tools print it: in one line or indented, lines of it, behind blanks or a byte order mark."""
    value, indent, rows = draw(VALUES), draw(st.sampled_from([None, None, 2])), draw(st.sampled_from([0, 0, 9, 90]))
    value = [value] * rows if rows else value
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent)
    if draw(st.integers(0, 4)) == 0:
        text = "\n".join([text] * draw(st.integers(2, 50)))
    return str(draw(st.sampled_from(["", "", "", " ", "\n\t ", "\ufeff", "\ufeff \n"])) + text)


LIMITS = st.builds(
    ExcerptLimits,
    st.sampled_from([1, 5, 400]),
    st.sampled_from([400, 2_000, 8_000]),
    st.none() | st.just(1_000),
    st.sampled_from(Direction),
)


def begins_like_json(text: str) -> bool:
    return text.lstrip().removeprefix("\ufeff").lstrip()[:1] in ("{", "[", '"')


def is_json(text: str) -> bool:
    try:
        json.loads(text.lstrip().removeprefix("\ufeff"))
    except ValueError:
        return False
    return True


def texts_of_results(conversation: Conversation) -> list[str]:
    return [text for message in conversation.messages if message.role in TOOL_ROLES for _, text in message.texts()]


def sent_by(api: str, messages: list[Any], made: Pipeline) -> Conversation:
    wire = WIRES[api]
    request = wire.parse(json.dumps(SPELLED[api][1]({"model": "m", "messages": messages})).encode())
    found, _ = plan(request.conversation, Size(), made)
    return wire.parse(wire.render(request, found.sent, {})).conversation


@pytest.mark.parametrize("api", WIRES)
@given(st.lists(results(), min_size=1, max_size=6), budgets(), LIMITS, st.sampled_from(["en", "zh"]), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_json_result_that_is_cut_stays_json_or_does_not_begin_like_json(
    api, outputs, budget, limits, language, cleans
):
    history = [system(), user("Fix it.")]
    for number, output in enumerate(outputs):
        content = [{"type": "text", "text": output}] if number % 3 == 2 else output
        history += exchange([content, "plain"], first_call=2 * number)
    made = pipeline(budget, limits=limits, language=language)
    if cleans:
        made = replace(made, local=(*made.local, SanitiseText(frozenset(Sanitise))))
    uncut = {text for output in outputs for text in (output, quoted(output))}
    for text in texts_of_results(sent_by(api, history, made)):
        assert text in uncut or is_json(text) or not begins_like_json(text)
