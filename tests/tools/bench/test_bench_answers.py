"""A figure may only come from an answer that is whole: what is let through here would flatter."""

import json

import pytest

from tools.bench.answers import WrongAnswer, check, json_answer, stream_events
from tools.bench.apis import TEXT

_SENT = b'{"messages":[{"role":"user","content":"hello"}]}'


def _check(answer, *, events=0, verbatim=True, fits=True, status=200):
    check(status, answer, _SENT, events=events, verbatim=verbatim, fits=fits)


def test_the_json_answer_is_a_chat_completion_of_one_length():
    small, large = json_answer(_SENT), json_answer(_SENT * 10_000)
    assert json.loads(small)["choices"][0]["message"]["content"] == TEXT
    assert json.loads(large)["usage"]["prompt_tokens"] == 0
    assert len(small) == len(large)


def test_the_stream_has_as_many_events_as_words_and_an_end():
    *events, end = stream_events(_SENT, 5)
    words = [json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["content"] for event in events]
    assert words == ["word00000 ", "word00001 ", "word00002 ", "word00003 ", "word00004 "]
    assert end == b"data: [DONE]\n\n"


@pytest.mark.parametrize("verbatim", [True, False])
def test_what_the_upstream_wrote_is_right(verbatim):
    _check(json_answer(_SENT), verbatim=verbatim)
    _check(b"".join(stream_events(_SENT, 5)), events=5, verbatim=verbatim)


def test_a_proxy_that_writes_the_json_anew_is_judged_by_the_text():
    _check(json.dumps(json.loads(json_answer(_SENT)), indent=2).encode(), verbatim=False)
    with pytest.raises(WrongAnswer, match="another text"):
        _check(b'{"choices":[]}', verbatim=False)


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        (b"no upstream", 502, "status 502: no upstream"),
        (json_answer(_SENT).replace(b"stale", b"fresh"), 200, "or other ones"),
        (json_answer(_SENT.replace(b"hello", b"hallo")), 200, "did not reach the upstream as it was sent"),
    ],
)
def test_a_wrong_answer_is_reported_with_its_reason(answer, status, why):
    with pytest.raises(WrongAnswer, match=why):
        _check(answer, status=status)


@pytest.mark.parametrize("verbatim", [True, False])
def test_a_stream_that_lacks_an_event_is_wrong(verbatim):
    events = stream_events(_SENT, 5)
    for missing in range(len(events)):
        with pytest.raises(WrongAnswer):
            _check(b"".join(events[:missing] + events[missing + 1 :]), events=5, verbatim=verbatim)


def test_a_request_over_the_window_has_to_be_changed_on_its_way():
    _check(json_answer(b"a shorter one"), fits=False)
    with pytest.raises(WrongAnswer, match="over the window"):
        _check(json_answer(_SENT), fits=False)
    with pytest.raises(WrongAnswer, match="bytes instead of"):
        _check(json_answer(b"a shorter one") + b" ", fits=False)


def test_if_fit_is_unknown_both_outcomes_are_right_as_long_as_the_answer_is_whole():
    _check(json_answer(_SENT), fits=None)
    _check(json_answer(b"a shorter one"), fits=None)
    with pytest.raises(WrongAnswer, match="bytes instead of"):
        _check(json_answer(_SENT)[:-1], fits=None)
