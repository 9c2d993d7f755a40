"""The reaction to a refusal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.models import LimitName, Modality, Search, facts
from proxy.core.overflow import (
    BYTES,
    CONTENT,
    CURES,
    FIRST,
    HISTORY,
    SIZE,
    Attempt,
    AttemptKind,
    Cure,
    Exactness,
    Outcome,
    Scope,
    Situation,
    Terms,
    Unit,
    Verdict,
    VerdictKind,
    best,
    lessons_of,
    next_cures,
    room_in_rate,
)
from proxy.core.overflow.goals import LEAST_LIMIT_BYTES, MIN_USEFUL_REPLY_TOKENS, emergency_goal, emergency_reply

COUNTS = st.integers(1, 10**6)
MAYBE = st.none() | COUNTS
ANY_VERDICTS = st.builds(
    Verdict,
    st.sampled_from(VerdictKind),
    limit=MAYBE,
    limit_scope=st.sampled_from(Scope),
    requested=MAYBE,
    prompt=MAYBE,
    reply=MAYBE,
    unit=st.none() | st.sampled_from(Unit),
    exactness=st.sampled_from(Exactness),
    is_suspect=st.booleans(),
)
EXACT_VERDICTS = st.builds(
    Verdict,
    st.just(VerdictKind.PROMPT_PLUS_REPLY),
    limit=COUNTS,
    limit_scope=st.sampled_from(Scope),
    prompt=COUNTS,
    unit=st.just(Unit.TOKENS),
    exactness=st.just(Exactness.EXACT),
)
"""The only ones that prove a shorter reply."""
VERDICTS = ANY_VERDICTS | EXACT_VERDICTS
SITUATIONS = st.builds(Situation, COUNTS, COUNTS, COUNTS, MAYBE, st.booleans(), st.booleans())
STATUSES = st.sampled_from([200, 400, 413, 422, 429, 500])


def history_of(cures: Sequence[Cure], outcomes: Sequence[Outcome]) -> list[Attempt]:
    return [Attempt(cure, outcome, is_whole=True) for cure, outcome in zip(cures, outcomes, strict=False)]


def sends(situation: Situation, *outcomes: Outcome) -> list[Cure]:
    """What is sent, when the upstream answers like this and each plan but one on the terms of the next turn keeps to
    its goal."""
    found = [FIRST]
    for count in range(1, len(outcomes) + 1):
        following = next_cures(history_of(found, outcomes[:count]), situation)
        if not following:
            break
        found.append(next(one for one in following if one.terms is None or one.terms != situation.terms))
    return found


def plain(cure: Cure) -> Cure:
    """A cure without the names of its reason."""
    return replace(cure, cause="", reason=VerdictKind.PROMPT)


def after(situation: Situation, status: int, verdict: Verdict) -> list[Cure]:
    return [plain(one) for one in next_cures([Attempt(FIRST, Outcome(status, verdict))], situation)]


def second(situation: Situation, status: int, verdict: Verdict) -> Cure | None:
    return dict(enumerate(map(plain, sends(situation, Outcome(status, verdict))))).get(1)


SENT = Situation(10_000, 40_000, 80_000, 4_000, edited=True, original_could_fit=True)


@given(SITUATIONS, STATUSES, VERDICTS, VERDICTS)
def test_there_are_three_sends_at_most_and_no_reason_is_cured_twice(situation, status, first, then):
    made = sends(situation, Outcome(status, first), Outcome(400, then), Outcome(400, then), Outcome(400, first))
    assert len(made) <= 3
    assert len({attempt.reason for attempt in made[1:]}) == len(made) - 1


@given(SITUATIONS, STATUSES, VERDICTS)
def test_a_second_send_is_smaller_or_requests_less_or_is_the_original(situation, status, verdict):
    attempt = second(situation, status, verdict)
    if attempt is None:
        return
    match attempt.kind:
        case AttemptKind.EMERGENCY:
            assert verdict.is_overflow or verdict.is_over_rate or verdict.is_suspect
            assert 0 <= attempt.goal_tokens <= 0.9 * situation.estimate_tokens
            assert attempt.reply_tokens is None or attempt.reply_tokens <= situation.reply_tokens
        case AttemptKind.SHORTER_REPLY:
            assert verdict.is_overflow or verdict.is_over_rate
            assert attempt.goal_tokens is None
            assert attempt.reply_tokens >= MIN_USEFUL_REPLY_TOKENS
            assert situation.reply_tokens is None or attempt.reply_tokens < situation.reply_tokens
        case AttemptKind.FEWER_BYTES:
            assert status == 413
            assert attempt.terms.goal_bytes < situation.bytes
        case AttemptKind.ORIGINAL:
            assert situation.edited
            assert situation.original_could_fit
            assert not verdict.is_overflow
        case kind:
            assert kind is AttemptKind.REPEATED
            assert verdict.is_silent


@given(SITUATIONS, st.sampled_from([200, 201, 302]), st.builds(Verdict, st.just(VerdictKind.ACCEPTED), MAYBE))
def test_nothing_follows_a_final_outcome_in_any_situation(situation, status, verdict):
    outcome = Outcome(status, verdict)
    assert outcome.is_final
    assert len(sends(situation, outcome)) == 1


@given(SITUATIONS, STATUSES, VERDICTS)
def test_every_overflow_is_tried_once_more(situation, status, verdict):
    assert not verdict.is_overflow or second(situation, status, verdict) is not None


@pytest.mark.parametrize("kind", [VerdictKind.RATE, VerdictKind.QUOTA, VerdictKind.AUTH, VerdictKind.TRANSIENT])
def test_what_would_come_for_the_original_too_is_not_tried_again(kind):
    assert second(SENT, 400, Verdict(kind)) is None


@pytest.mark.parametrize("kind", ["field", "count", "pairing", "policy", "seal", "unknown"])
def test_what_an_edit_of_ours_may_have_caused_is_tried_with_the_original(kind):
    verdict = Verdict(VerdictKind(kind))
    for status in (400, 422):
        assert second(SENT, status, verdict) == Cure(AttemptKind.ORIGINAL)
    assert second(SENT, 500, verdict) is None
    assert second(Situation(10, 40, 60, None, edited=False, original_could_fit=True), 400, verdict) is None
    assert second(Situation(10, 40, 60, None, edited=True, original_could_fit=False), 400, verdict) is None


OVER_WITH_ITS_REPLY = Verdict(VerdictKind.PROMPT_PLUS_REPLY, limit=12_000, prompt=10_000, reply=4_000, unit=Unit.TOKENS)


def test_the_reply_gives_way_when_the_numbers_prove_that_the_prompt_fits():
    assert second(SENT, 400, OVER_WITH_ITS_REPLY) == Cure(AttemptKind.SHORTER_REPLY, reply_tokens=12_000 - 10_000 - 16)


@pytest.mark.parametrize(
    "numbers",
    [
        {"limit": 12_000, "prompt": 11_900, "unit": Unit.TOKENS},  # hardly a reply would be left
        {"limit": 12_000, "prompt": 10_000, "unit": Unit.TOKENS, "exactness": Exactness.AT_LEAST},
        {"limit": 12_000, "prompt": 10_000, "unit": Unit.CHARS},
        {"limit": 12_000, "unit": Unit.TOKENS},
        {"prompt": 10_000, "unit": Unit.TOKENS},
    ],
)
def test_where_the_numbers_do_not_prove_it_the_prompt_is_cut(numbers):
    attempt = second(SENT, 400, Verdict(VerdictKind.PROMPT_PLUS_REPLY, **numbers))
    assert attempt.kind is AttemptKind.EMERGENCY


def over_rate(limit: int, requested: int) -> Verdict:
    return Verdict(VerdictKind.RATE, limit=limit, requested=requested, unit=Unit.TOKENS)


def test_what_alone_is_over_a_rate_is_cut_below_it_together_with_its_reply():
    attempt = second(SENT, 413, over_rate(6_000, 14_000))
    terms = Terms(goal_tokens=3_600, most_tokens=5_456)
    assert attempt == Cure(AttemptKind.EMERGENCY, terms, reply_tokens=1_800, goal_tokens=3_600)
    surely, _, at_the_limit = after(SENT, 413, over_rate(6_000, 14_000))
    assert surely == Cure(AttemptKind.EMERGENCY, Terms(), reply_tokens=1_800, goal_tokens=5_700, is_sure=True)
    assert at_the_limit == Cure(AttemptKind.EMERGENCY, terms, reply_tokens=256, goal_tokens=5_456)
    beside_no_reply = Situation(10_000, 40_000, 60_000, None, edited=False, original_could_fit=True)
    assert second(beside_no_reply, 413, over_rate(6_000, 12_500)).goal_tokens == 6_000 * 0.6 * 10_000 // 12_500


def test_a_reply_that_takes_a_rate_is_lowered_where_the_prompt_alone_is_under_it():
    """https://github.com/zeeyado/koassistant.koplugin/issues/106"""
    word = Situation(900, 3_600, 5_400, 32_000, edited=False, original_could_fit=True)
    assert second(word, 413, over_rate(8_000, 32_979)) == Cure(AttemptKind.SHORTER_REPLY, reply_tokens=8_000 - 979 - 16)
    uncounted = Situation(7_000, 28_000, 42_000, 4_000, edited=False, original_could_fit=True)
    assert second(uncounted, 413, over_rate(6_000, 7_100)).kind is AttemptKind.EMERGENCY, "the reply is not in that sum"


def test_if_an_unconfirmed_estimate_leaves_open_whether_a_rate_counted_the_reply_both_readings_fit():
    unsure = Situation(4_005, 16_000, 24_000, 512, edited=False, original_could_fit=True, count_may_be_wrong=True)
    sends = after(unsure, 429, over_rate(5_000, 5_147))
    assert [attempt.kind for attempt in sends] == [AttemptKind.EMERGENCY] * 3
    for attempt in sends:
        assert attempt.goal_tokens * 5_147 / 4_005 <= 5_000, "the prompt alone"
        assert attempt.goal_tokens * (5_147 - 512) / 4_005 + attempt.reply_tokens <= 5_000, "with its reply"
    confirmed = replace(unsure, count_may_be_wrong=False)
    assert second(confirmed, 429, over_rate(5_000, 5_147)).reply_tokens == 5_000 - 4_635 - 16
    proven = replace(unsure, reply_tokens=4_000)
    shorter = Cure(AttemptKind.SHORTER_REPLY, reply_tokens=5_000 - 4_005 - 16)
    assert second(proven, 429, over_rate(5_000, 8_005)) == shorter, "the prompt alone is not twice its estimate"


def test_a_rate_is_a_window_for_prompt_and_reply_where_it_counts_both():
    assert room_in_rate(over_rate(6_000, 14_000), 10_000, 4_000) == (6_000, True)
    assert room_in_rate(over_rate(6_000, 24_000), 10_000, 4_000) == (3_000, True), "as the rate counts prompts"
    assert room_in_rate(over_rate(6_000, 12_000), 16_000, None) == (6_000, True)
    assert room_in_rate(over_rate(6_000, 7_100), 7_000, 4_000) == (5_915, False)
    assert room_in_rate(Verdict(VerdictKind.RATE), 7_000, None) == (0, False)


@pytest.mark.parametrize("edited", [True, False])
def test_a_rate_that_the_request_alone_is_under_is_waited_for(edited):
    situation = Situation(10_000, 40_000, 60_000, None, edited=edited, original_could_fit=True)
    assert second(situation, 429, over_rate(6_000, 6_000)) is None
    assert second(situation, 429, Verdict(VerdictKind.RATE, limit=6_000)) is None


def test_less_of_what_got_no_answer_and_no_word_is_sent_once():
    empty = Verdict(VerdictKind.EMPTY, evidence="choices.finish_reason", is_suspect=True)
    wordless = Verdict(VerdictKind.UNKNOWN, is_suspect=True)
    unedited = Situation(10_000, 40_000, 60_000, 4_000, edited=False, original_could_fit=True)
    less = Cure(AttemptKind.EMERGENCY, Terms(goal_tokens=6_000), 4_000, goal_tokens=6_000)
    assert second(SENT, 200, empty) == second(unedited, 200, empty) == second(unedited, 400, wordless) == less
    assert second(SENT, 400, wordless) == Cure(AttemptKind.ORIGINAL), "the edits may be why"
    cut = Situation(10_000, 40_000, 60_000, 4_000, edited=True, original_could_fit=False)
    assert second(cut, 400, wordless) == less, "the original is longer than what a guess allows"
    with_tool = replace(cut, has_our_tool=True)
    assert second(with_tool, 400, wordless) == less, "nor may the tool be why"
    assert second(unedited, 200, Verdict(VerdictKind.EMPTY)) is None
    assert second(unedited, 400, Verdict(VerdictKind.UNKNOWN)) is None


def test_the_plan_of_the_next_turn_comes_first_unless_a_page_has_to_get_smaller():
    search = Search.begun(10_000, 0, 0, 0)
    searching = replace(SENT, search=search)
    planned = [attempt.terms for attempt in after(searching, 400, Verdict(VerdictKind.PROMPT))]
    assert planned == [Terms(supposed=search), Terms(goal_tokens=6_000)]
    with_a_page = replace(searching, holds_a_page=True)
    for verdict in (Verdict(VerdictKind.PROMPT), over_rate(6_000, 14_000)):
        assert {attempt.terms.goal_tokens for attempt in after(with_a_page, 400, verdict)} <= {3_600, 6_000}


def test_the_goal_is_well_under_the_limit_in_the_upstreams_own_tokens():
    verdict = Verdict(VerdictKind.PROMPT, limit=8_000, prompt=20_000, unit=Unit.TOKENS)
    assert emergency_goal(verdict, SENT) == int(8_000 * 0.6 / 2)
    less = Verdict(VerdictKind.PROMPT, limit=8_000, prompt=9_000, unit=Unit.TOKENS)
    assert emergency_goal(less, SENT) == int(8_000 * 0.6)
    with_its_reply = Verdict(VerdictKind.PROMPT, limit=8_000, requested=20_000, unit=Unit.TOKENS)
    assert emergency_goal(with_its_reply, SENT) == int(8_000 * 0.6 / 2), "although the reply may be counted, too"
    assert emergency_goal(replace(with_its_reply, exactness=Exactness.ABOUT), SENT) == int(8_000 * 0.6)
    assert emergency_goal(Verdict(VerdictKind.PROMPT, limit=20_000, unit=Unit.CHARS), SENT) == 3_000
    assert emergency_goal(Verdict(VerdictKind.PROMPT), SENT) == 6_000
    assert emergency_goal(Verdict(VerdictKind.PROMPT), replace(SENT, guess_tokens=9_000)) == 9_000


def test_an_excess_leaves_less_of_a_prompt_that_may_have_fewer_tokens_than_estimated():
    unsure = replace(SENT, guess_tokens=2_000, count_may_be_wrong=True, fixed_tokens=600)
    for excess, goal in ((5_000, 2_000), (5_500, 1_750), (6_000, 1_300), (9_000, 1_300)):
        verdict = Verdict(VerdictKind.PROMPT, excess=excess, unit=Unit.TOKENS)
        assert emergency_goal(verdict, unsure) == goal
        assert emergency_goal(verdict, replace(unsure, count_may_be_wrong=False)) == 2_000
    in_characters = Verdict(VerdictKind.PROMPT, excess=9_000, unit=Unit.CHARS)
    assert emergency_goal(in_characters, unsure) == 2_000


@pytest.mark.parametrize(
    ("counted", "may_be_wrong", "goal"),
    [
        *((10_000, False, 7_600), (10_000, True, 6_800)),
        *((9_600, False, 7_916), (10_400, False, 7_307), (9_400, False, 7_234), (12_000, False, 5_666)),
    ],
)
def test_an_estimate_of_10_000_that_is_only_one_or_was_off_by_more_than_the_margin_proves_less_of_a_part(
    counted, may_be_wrong, goal
):
    verdict = Verdict(VerdictKind.PROMPT, limit=8_000, prompt=counted, unit=Unit.TOKENS)
    sure, *_ = after(replace(SENT, count_may_be_wrong=may_be_wrong), 400, verdict)
    assert (sure.is_sure, sure.goal_tokens) == (True, goal)


def test_the_reply_is_lowered_with_the_prompt_where_they_share_a_window():
    window = Verdict(VerdictKind.PROMPT_PLUS_REPLY, limit=8_000, unit=Unit.TOKENS, limit_scope=Scope.WINDOW)
    assert emergency_reply(window, SENT) == 2_400
    assert emergency_reply(Verdict(VerdictKind.PROMPT_PLUS_REPLY), SENT) == 2_000
    assert emergency_reply(Verdict(VerdictKind.PROMPT), SENT) == 4_000, "a shorter prompt leaves room for no longer one"
    apart = Verdict(VerdictKind.PROMPT, limit=8_000, unit=Unit.TOKENS, limit_scope=Scope.INPUT)
    assert emergency_reply(apart, SENT) is None


@pytest.mark.parametrize("status", [400, 404, 415, 422, 500])
def test_refused_media_are_sent_as_text_once(status):
    situation = Situation(1_000, 4_000, 6_000, None, edited=False, original_could_fit=True)
    both = frozenset({Modality.VISION, Modality.FILE})
    refused = Verdict(VerdictKind.MEDIA, refused=frozenset({Modality.FILE, Modality.AUDIO}))
    made = [plain(one) for one in sends(situation, Outcome(status, refused, both), Outcome(status, refused, both))]
    files = frozenset({Modality.FILE})
    assert made == [plain(FIRST), Cure(AttemptKind.WITHOUT_MEDIA, Terms(without=files), refused=files)]
    images = sends(situation, Outcome(status, Verdict(VerdictKind.MEDIA, refused=frozenset({Modality.VISION})), both))
    assert images[1].refused == both, "what takes no images takes no pages"
    unnamed = sends(situation, Outcome(status, Verdict(VerdictKind.MEDIA), both))
    assert unnamed[1].refused == both
    others = sends(situation, Outcome(status, Verdict(VerdictKind.MEDIA, refused=frozenset({Modality.AUDIO})), both))
    assert others[1].refused == both
    assert second(situation, status, refused) is None


@pytest.mark.parametrize(
    ("status", "kind", "suspect", "is_sent"),
    [
        (413, VerdictKind.BYTES, False, True),
        (413, VerdictKind.UNKNOWN, False, True),
        (413, VerdictKind.UNKNOWN, True, False),
        (413, VerdictKind.MEDIA, False, False),
        (400, VerdictKind.BYTES, False, False),
    ],
)
def test_after_a_413_for_bytes_half_of_them_is_sent(status, kind, suspect, is_sent):
    found = second(SENT, status, Verdict(kind, is_suspect=suspect))
    assert (found is not None and found.kind is AttemptKind.FEWER_BYTES) is is_sent
    assert not is_sent or found.terms == Terms(goal_bytes=40_000)


@pytest.mark.parametrize(
    ("size", "limit", "goal"),
    [
        (40_000, 32_000, 30_400),
        (40_000, 39_999, 36_000),
        (40_000, 40_001, None),
        (200_000, 20_000, 19_000),
        (LEAST_LIMIT_BYTES - 1, LEAST_LIMIT_BYTES, None),  # no server refuses so few
    ],
)
def test_after_a_413_that_states_its_bytes_a_body_under_them_is_sent(size, limit, goal):
    refusal = Verdict(VerdictKind.BYTES, named=LimitName.BODY, named_limit=limit)
    found = second(replace(SENT, bytes=size), 413, refusal)
    assert (None if found is None else found.terms.goal_bytes) == goal


IMAGES = frozenset({Modality.VISION})
OF_MEDIA = Outcome(400, Verdict(VerdictKind.MEDIA, refused=IMAGES), IMAGES)
OF_PAIRS = Outcome(400, Verdict(VerdictKind.PAIRING), is_repairable=True)
OF_SEALS = Outcome(400, Verdict(VerdictKind.SEAL), is_repairable=True)
OF_LENGTH = Outcome(400, Verdict(VerdictKind.PROMPT, limit=8_000, prompt=9_000, unit=Unit.TOKENS))
OF_BYTES = Outcome(413, Verdict(VerdictKind.BYTES))
NAMED = [OF_MEDIA, OF_PAIRS, OF_SEALS, OF_LENGTH, OF_BYTES]


@pytest.mark.parametrize("first", NAMED)
@pytest.mark.parametrize("then", NAMED)
def test_another_named_reason_is_cured_too_and_the_same_one_is_not(first, then):
    made = sends(SENT, first, then, first, then)
    assert len(made) == (2 if first is then else 3)
    assert then.proves(made[1:2]) is (first is not then)


def test_each_kind_of_media_is_a_reason_of_its_own():
    files, images = frozenset({Modality.FILE}), frozenset({Modality.VISION})
    first, then = (Outcome(400, Verdict(VerdictKind.MEDIA, refused=one), files | images) for one in (files, images))
    made = sends(SENT, first, then)
    assert [attempt.refused for attempt in made[1:]] == [files, files | images]
    assert then.proves(made[1:2])
    assert not first.proves(made[1:2])


def test_a_lowered_reply_stays_lowered_in_the_third_send():
    third = sends(SENT, Outcome(400, OVER_WITH_ITS_REPLY), OF_MEDIA)[2]
    assert (third.kind, third.reply_tokens) == (AttemptKind.WITHOUT_MEDIA, 12_000 - 10_000 - 16)


WITH_TOOL = replace(SENT, has_our_tool=True, terms=Terms(tools=b"[]"))


@pytest.mark.parametrize("could_fit", [True, False])
@pytest.mark.parametrize("kind", [VerdictKind.FIELD, VerdictKind.COUNT, VerdictKind.UNKNOWN])
def test_our_tool_is_left_out_before_any_other_edit_is_undone(kind, could_fit):
    situation = replace(WITH_TOOL, original_could_fit=could_fit)
    assert second(situation, 400, Verdict(kind)) == Cure(AttemptKind.WITHOUT_TOOL, Terms())


def test_our_tool_is_left_out_after_another_cure_only_if_a_refusal_names_it_or_a_member():
    named = Outcome(400, Verdict(VerdictKind.UNKNOWN), names_our_tool=True)
    both = [AttemptKind.WITHOUT_MEDIA, AttemptKind.WITHOUT_TOOL]
    assert [one.kind for one in sends(WITH_TOOL, OF_MEDIA, named)[1:]] == both
    made = sends(WITH_TOOL, OF_MEDIA, Outcome(400, Verdict(VerdictKind.FIELD)))
    assert [one.kind for one in made[1:]] == [AttemptKind.WITHOUT_MEDIA, AttemptKind.WITHOUT_TOOL]
    assert len(sends(WITH_TOOL, OF_MEDIA, Outcome(400, Verdict(VerdictKind.UNKNOWN)))) == 2


def test_beside_the_fixed_parts_there_is_room_for_the_rest():
    fixed = replace(SENT, fixed_tokens=6_000)
    assert emergency_goal(Verdict(VerdictKind.PROMPT), fixed) == 6_800
    assert sends(fixed, OF_BYTES)[1].terms.goal_bytes == 64_000


ACCEPTED = Outcome(200, Verdict(VerdictKind.ACCEPTED))
CUT = Outcome(200, Verdict(VerdictKind.ACCEPTED), fitting_tokens=4_000)
SILENCE = Outcome(200, Verdict(VerdictKind.EMPTY, is_suspect=True))
WORDLESS = Outcome(500, Verdict(VerdictKind.UNKNOWN, is_suspect=True))
UNNAMED = Outcome(400, Verdict(VerdictKind.PROMPT))
ABOUT_MODEL = Outcome(400, Verdict(VerdictKind.MEDIA, refused=IMAGES, refuses_model=True), IMAGES)
IN_RESULTS = Outcome(400, Verdict(VerdictKind.MEDIA, refused=IMAGES, refuses_in_results=True), IMAGES)
IF_MANY = Outcome(400, Verdict(VerdictKind.MEDIA, refused=IMAGES, refuses_model=True, is_conditional=True), IMAGES)
NO_JSON = Outcome(500, Verdict(VerdictKind.UNKNOWN, misses_json=True))
OF_A_FIELD = Outcome(400, Verdict(VerdictKind.FIELD))
BROKEN = Outcome(502, Verdict(VerdictKind.TRANSIENT))
NO_ANSWER = Outcome(200, Verdict(VerdictKind.EMPTY))
"""To a request that is too short for its length to be the reason."""
UNNAMED_REASON = Outcome(400, Verdict(VerdictKind.UNKNOWN))
OVER_RATE = Outcome(429, Verdict(VerdictKind.RATE))

OF_IMAGES = Outcome(400, Verdict(VerdictKind.COUNT, named=LimitName.IMAGES, named_limit=20))
OF_ITEMS = Outcome(400, Verdict(VerdictKind.COUNT, named=LimitName.MESSAGES, named_limit=40))
HISTORIES = [
    # what was sent and met, the causes of the cures, what the client gets, what the last response teaches of which send
    ([ACCEPTED], [], 0, []),
    ([BROKEN], [], 0, []),
    ([OF_LENGTH, ACCEPTED], ["prompt"], 1, []),
    ([OF_LENGTH, OF_LENGTH], ["prompt"], 1, []),
    ([UNNAMED, ACCEPTED], ["prompt"], 1, [(SIZE, 1)]),
    ([UNNAMED, BROKEN], ["prompt"], 1, []),
    ([CUT, ACCEPTED], ["silent_cut"], 1, []),
    ([CUT, OF_LENGTH], ["silent_cut"], 0, []),
    ([NO_ANSWER], [], 0, []),
    ([SILENCE, ACCEPTED], ["silence"], 1, []),
    ([SILENCE, UNNAMED, SILENCE], ["silence", "prompt"], 2, []),
    ([UNNAMED, SILENCE, SILENCE], ["prompt", "silence"], 2, []),
    ([SILENCE, SILENCE, ACCEPTED], ["silence", "no_words"], 2, [(facts.SEARCH, 2), (SIZE, 2)]),
    ([SILENCE, SILENCE, SILENCE], ["silence", "no_words"], 2, []),
    ([WORDLESS, ACCEPTED], ["no_words"], 1, [(facts.SEARCH, 1), (SIZE, 1)]),
    ([WORDLESS, BROKEN], ["no_words"], 0, []),
    ([ABOUT_MODEL, ACCEPTED], ["media"], 1, [(facts.REFUSES, 1)]),
    ([ABOUT_MODEL, OF_LENGTH, ACCEPTED], ["media", "prompt"], 2, []),
    ([ABOUT_MODEL, OF_LENGTH], ["media"], 1, [(facts.REFUSES, 1)]),
    ([ABOUT_MODEL, ABOUT_MODEL], ["media"], 1, []),
    ([ABOUT_MODEL, UNNAMED_REASON, ACCEPTED], ["media"], 1, []),
    ([ABOUT_MODEL, OVER_RATE, ACCEPTED], ["media"], 1, []),
    ([UNNAMED_REASON, ABOUT_MODEL, ACCEPTED], ["edit"], 1, []),
    ([IN_RESULTS, ACCEPTED], ["media"], 1, [(facts.RESULTS_HOLD_TEXT, 1)]),
    ([IF_MANY, ACCEPTED], ["media"], 1, [(facts.REFUSES, 1)]),
    ([OF_IMAGES, ACCEPTED], ["limit"], 1, [(facts.AT_MOST, 1)]),
    ([OF_IMAGES, OF_IMAGES], ["limit"], 1, []),
    ([OF_IMAGES, OF_ITEMS, ACCEPTED], ["limit", "limit"], 2, [(facts.AT_MOST, 2)]),
    ([OF_IMAGES, OF_LENGTH, ACCEPTED], ["limit", "prompt"], 2, []),
    ([OF_BYTES, ACCEPTED], ["bytes"], 1, [(BYTES, 1)]),
    ([OF_SEALS, ACCEPTED], ["history"], 1, [(HISTORY, 1)]),
    ([OF_SEALS, OF_SEALS], ["history"], 0, [(HISTORY, 1)]),
    ([OF_SEALS, BROKEN], ["history"], 0, []),
    ([OF_PAIRS, ACCEPTED], ["history"], 1, [(HISTORY, 1)]),
    ([OF_PAIRS, OF_PAIRS], ["history"], 1, []),
    ([OF_PAIRS, OF_MEDIA, ACCEPTED], ["history", "media"], 2, [(CONTENT, 2)]),
    ([NO_JSON, ACCEPTED], ["cut_results"], 1, [(facts.CUT_RESULTS_REFUSED, 1)]),
    ([OF_A_FIELD, ACCEPTED], ["our_tool"], 1, [(facts.REFUSES_OUR_TOOL, 1)]),
    ([OF_A_FIELD, OF_A_FIELD, ACCEPTED], ["our_tool"], 1, []),
    ([OF_A_FIELD, NO_JSON, ACCEPTED], ["our_tool", "cut_results"], 2, [(facts.CUT_RESULTS_REFUSED, 2)]),
]


@pytest.mark.parametrize(("outcomes", "causes", "given", "taught"), HISTORIES)
def test_a_history_says_what_is_sent_which_response_the_client_gets_and_what_was_learned(
    outcomes, causes, given, taught
):
    situation = WITH_TOOL if outcomes[0] is OF_A_FIELD else SENT
    if outcomes[0] is WORDLESS:
        situation = replace(SENT, edited=False)
    cures = sends(situation, *outcomes)[: len(outcomes)]
    history = history_of(cures, outcomes)
    assert [cure.cause for cure in cures[1:]] == causes
    assert best(history) is history[given]
    lessons = [(lesson.about, history.index(lesson.sent)) for lesson in lessons_of(history)]
    assert lessons == taught
    assert all(lesson.refused is history[history.index(lesson.sent) - 1] for lesson in lessons_of(history))
    begun = [replace(one, is_whole=False) for one in history]
    assert best(begun) is begun[given if causes == ["silent_cut"] else -1], (
        "what was not read whole cannot be given later"
    )


def test_every_row_of_the_table_has_a_name_of_its_own_and_is_used():
    causes = [row.cause for row in CURES]
    assert len(set(causes)) == len(causes)
    told = {cause for _, causes, *_ in HISTORIES for cause in causes} | {"reply"}
    assert told == set(causes)


@given(SITUATIONS, STATUSES, VERDICTS)
def test_a_row_sends_what_it_says_it_sends(situation, status, verdict):
    outcome = Outcome(status, verdict)
    for row in CURES:
        if row.is_reason(outcome, situation):
            assert {cure.kind for cure in row.cures(outcome, situation)} <= {row.kind}
