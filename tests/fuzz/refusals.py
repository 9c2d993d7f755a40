"""Refusals: whatever an upstream says, there is one verdict, and the text around the words does not change it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from fuzz.mutations import SPELLINGS, damaged, mutated, spelled
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.overflow import Sent, Verdict
from proxy.wire import judge_answer

_STATUSES: Final = (200, 400, 401, 413, 422, 429, 500)
_AROUND: Final = ((b"", b"\n"), (b" \r\n\t", b""), (b"\n\n", b" " * 400))
_HEADERS: Final = [(b"content-type", b"text/html"), (b"x-request-id", b"prompt is too long: 5 > 4")]
_VARIANTS: Final = Path(__file__).parents[1] / "wire" / "unseen_variants.jsonl"


@cache
def _known() -> list[str]:
    """Bodies of refusals, and of what looks like one, as upstreams sent them."""
    rows = [json.loads(line) for line in _VARIANTS.read_text("utf-8").splitlines()]
    return [row["body"] if isinstance(row["body"], str) else json.dumps(row["body"]) for row in rows]


@st.composite
def _cases(draw: Any) -> bytes:
    body = draw(st.sampled_from(_known()))
    try:
        value = json.loads(body)
    except ValueError:
        return body.encode("utf-8", "surrogatepass")
    found: bytes = draw(spelled(mutated(st.just(value))))
    match draw(st.sampled_from(["plain", "plain", "plain", "event", "error event", "nested", "beside"])):
        case "event":
            return b"data: " + found + b"\n\n"
        case "error event":
            return b"event: error\r\ndata: " + found.replace(b"\n", b"\r\ndata: ") + b"\r\n\r\n"
        case "nested":
            return json.dumps({"error": {"message": found.decode("utf-8", "replace"), "code": 400}}).encode()
        case "beside":
            other = draw(st.sampled_from(_known()))
            return json.dumps([value, other]).encode()
        case _:
            return found


CASES: Final = damaged(_cases())


def check(case: bytes) -> None:
    """Raises AssertionError for a broken rule; whatever else is raised is a defect, too."""
    for status in _STATUSES:
        verdict = judge_answer(status, [], case)
        _check_verdict(verdict, status)
        assert judge_answer(status, _HEADERS, case) == verdict
        for before, after in _AROUND:
            around = before + case + after
            if len(around) < 4_000:  # of longer ones the end is not read, and plain text that long is no error
                assert judge_answer(status, [], around) == verdict
        for again in _spelled_again(case):
            assert _without_place(judge_answer(status, [], again)) == _without_place(verdict)
        for tokens in (10, 100_000):
            estimated = judge_answer(status, [(b"retry-after", b"5")], case, sent=Sent(tokens, 4 * tokens))
            _check_verdict(estimated, status)
        _check_verdict(judge_answer(status, [], case, request=case, sent=Sent(window_tokens=8_192)), status)
        assert judge_answer(status, [], case, request=b'{"model": "m", "messages": []}') == verdict


def _check_verdict(verdict: Verdict, status: int) -> None:
    assert 0.0 <= verdict.confidence <= 1.0
    assert len(verdict.upstream_message) <= 2_000
    for number in (verdict.limit, verdict.requested, verdict.prompt, verdict.reply, verdict.excess):
        assert number is None or (type(number) is int and number >= 0)
    assert 200 <= status < 300 or verdict.kind not in ("accepted", "empty")
    if not (verdict.is_overflow or verdict.kind == "reply_only"):
        assert not verdict.limit_is_learnable


def _spelled_again(case: bytes) -> list[bytes]:
    """The same JSON in other bytes, short enough to be read whole."""
    if len(case) > 4_000 or case.count(b"[") > 100:  # how many lists in lists Python reads depends on its stack
        return []
    try:
        value = json.loads(case.decode())
        return [json.dumps(value, **how).encode() for how in SPELLINGS[1:]] if isinstance(value, dict) else []
    except (ValueError, RecursionError):
        return []


def _without_place(verdict: Verdict) -> Verdict:
    return replace(verdict, evidence="")
