"""What must hold for any wrapping, any JSON and any bytes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.overflow import Sent, VerdictKind
from proxy.wire.error_bodies import judge_answer

LIMITS = st.integers(min_value=1_000, max_value=2_000_000)


@st.composite
def sizes(draw) -> tuple[int, int]:
    """A limit and a size that breaks it."""
    limit = draw(LIMITS)
    return limit, limit + draw(st.integers(min_value=1, max_value=limit))


WRAPPINGS = {
    "nested string": lambda body: json.dumps({"error": {"message": body, "code": 400}}),
    "array": lambda body: f"[{body}]",
    "detail": lambda body: json.dumps({"detail": body}),
    "errors": lambda body: json.dumps({"errors": [json.loads(body)]}),
    "metadata.raw": lambda body: json.dumps(
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": body, "provider_name": "X"}}}
    ),
    "text": lambda body: f"Error from provider (X): {body}. Received Model Group=gpt-4-0613",
    "bytes": lambda body: json.dumps({"error": {"message": f"AnthropicException - b'{body}'"}}),
}


@given(sizes(), st.lists(st.sampled_from(sorted(WRAPPINGS)), max_size=3), st.booleans())
def test_no_wrapping_changes_kind_or_limit(pair, names, in_a_stream):
    limit, asked = pair
    body = json.dumps(
        {"error": {"message": f"The prompt has {asked} tokens, over the context length of {limit} tokens"}}
    )
    for name in names:
        wrapped = WRAPPINGS[name](body)
        body = wrapped if wrapped[0] in "[{" else json.dumps({"message": wrapped})
    raw = f"event: error\ndata: {body}\n\n" if in_a_stream else body
    statuses = (200, 400) if in_a_stream else (400,)
    for status in statuses:
        verdict = judge_answer(status, [], raw.encode())
        assert (verdict.kind, verdict.limit, verdict.prompt) == (VerdictKind.PROMPT, limit, asked)


@given(st.integers(min_value=100, max_value=599), st.binary(max_size=400), st.none() | LIMITS, st.none() | LIMITS)
def test_any_bytes_are_judged(status, body, estimate, window):
    verdict = judge_answer(status, [(b"retry-after", body[:9])], body, sent=Sent(estimate, window_tokens=window))
    assert 0.0 <= verdict.confidence <= 1.0


NAMES = st.sampled_from(["error", "message", "code", "type", "choices", "usage", "detail", "param"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES, st.sampled_from([200, 400, 500]), st.booleans())
def test_any_json_is_judged(value, status, in_a_stream):
    raw = json.dumps(value)
    verdict = judge_answer(status, [], (f"data: {raw}\n\n" if in_a_stream else raw).encode())
    assert len(verdict.upstream_message) <= 2_000


@given(st.text(alphabet="prompt 输入超过 token> 4096{}[]'\"\\:,.", max_size=300))
@settings(max_examples=50)
def test_no_assistant_text_ever_triggers(content):
    body = {
        "id": "1",
        "choices": [{"message": {"content": content}, "delta": {"content": content}, "finish_reason": "stop"}],
    }
    assert judge_answer(200, [], json.dumps(body).encode()).kind is VerdictKind.ACCEPTED
    assert judge_answer(200, [], f"data: {json.dumps(body)}\n\n".encode()).kind is VerdictKind.ACCEPTED


HOSTILE = [
    "[",
    '{"a":',
    '"\\',
    "'message': \"",
    "1 ",
    "1,234,",
    "a. ",
    "a_",
    "prompt is too long: 5 > 4, ",
    "request id: ",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_repetition_ends_and_is_no_error_of_ours(piece):
    body = (piece * 70_000).encode()[:200_000]
    assert judge_answer(400, [], body).kind in set(VerdictKind)
    assert judge_answer(200, [], b'{"error":"' + body).kind in set(VerdictKind)
