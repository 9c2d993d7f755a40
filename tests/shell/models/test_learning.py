"""Which of an upstream's statements are believed, and how workers share them."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.waiting import Clock

from proxy.core.models import Certainty, Search, facts
from proxy.core.overflow import Exactness, Scope, Unit, Verdict, VerdictKind
from proxy.shell.models import MIN_SAMPLES, Learning
from proxy.wire import ModelLimits

UPSTREAM = "http://upstream/v1"
BELIEVED = 100_000
TRUNCATED = "upstream_truncated_silently"


def refusal(limit: int | None, **members: Any) -> Verdict:
    """A refusal that prints an exact limit, unless overridden."""
    stated: dict[str, Any] = {"limit_scope": Scope.WINDOW, "unit": Unit.TOKENS, **members}
    return Verdict(VerdictKind.PROMPT, limit=limit, **stated)


def learning(folder: Path, upstream: str = UPSTREAM, *, enabled: bool = True, **more: Any) -> Learning:
    return Learning(folder, upstream, enabled=enabled, **more)


@pytest.fixture
def found(tmp_path: Path) -> Learning:
    return learning(tmp_path)


NOW = 1_800_000_000.0


def refused(found: Learning, tokens: int, by: str = "", reply: int = 0) -> None:
    """A refusal that names no limit."""
    found.note_unnamed_refusal("m", found.search_after("m", tokens, reply, by), by)


def guess(found: Learning, by: str = "") -> int | None:
    """The limit that is searched for."""
    search = found.search("m", by)
    return search and search.guess


def window(found: Learning, model: str = "m", *, by: str | None = None) -> int | None:
    limits = found.limits(model, by)
    return limits[0].window_tokens if limits else None


def use(found: Learning, *ratios: float, estimate: int = 10_000, by: str = "", may_cut: bool = False) -> None:
    for ratio in ratios:
        found.note_usage("m", "bytes", estimate, round(estimate * ratio), "req-1", by, may_cut=may_cut)


def test_an_exact_limit_is_believed_at_once_and_survives_a_restart(tmp_path: Path) -> None:
    first = learning(tmp_path)
    version = first.version
    with capture_logs() as log:
        for _ in range(3):
            first.note_refusal("m", refusal(60_000), BELIEVED)
    assert window(first) == window(learning(tmp_path)) == 60_000
    assert first.version == version + 1, "it is news once"
    assert log == [
        {"event": "lesson_learned", "log_level": "info", "model": "m", "lesson": facts.WINDOW, "value": 60_000}
    ]


@pytest.mark.parametrize(
    "verdict",
    [
        refusal(None),
        refusal(60_000, limit_exactness=Exactness.ABOUT),
        refusal(511),
        refusal(2**31),
    ],
)
def test_what_was_not_printed_exactly_or_cannot_be_is_not_believed(verdict: Verdict, found: Learning) -> None:
    for _ in range(3):
        found.note_refusal("m", verdict, BELIEVED)
    assert found.limits("m") is None


def test_a_window_that_is_a_guess_is_no_evidence_against_a_limit(found: Learning) -> None:
    found.note_refusal("m", refusal(4_096), None)
    assert window(found) == 4_096
    found.note_refusal("m", refusal(128_000), None)
    assert window(found) == 128_000


def test_a_limit_of_characters_bounds_the_characters_of_the_input_alone(found: Learning, tmp_path: Path) -> None:
    version = found.version
    with capture_logs() as log:
        for _ in range(2):
            found.note_refusal("m", refusal(900_000, unit=Unit.CHARS, limit_scope=Scope.INPUT), BELIEVED)
    assert (
        found.limits("m")
        == learning(tmp_path).limits("m")
        == (ModelLimits(input_chars=900_000), "learned from a refusal")
    )
    assert [(line["lesson"], line["value"]) for line in log] == [(facts.CHARS, 900_000)]
    assert found.version == version + 1


def test_one_count_of_a_refusal_is_enough_for_a_ratio(found: Learning, tmp_path: Path) -> None:
    version = found.version
    found.note_count("m", "bytes", 30_000, 36_600)
    assert found.ratio("m", "bytes") == learning(tmp_path).ratio("m", "bytes") == (1.23, True)
    use(found, 1.22, 1.23, 1.24, 1.21)
    assert (found.ratio("m", "bytes"), found.version) == ((1.23, True), version + 1), "a little more moves nothing"


MEASURED: dict[str, list[tuple[list[float], tuple[float, bool]]]] = {
    "adopted after three samples": [([1.22] * (MIN_SAMPLES - 1), (1.0, False)), ([1.22], (1.22, True))],
    "raised if it was too low": [([1.22] * MIN_SAMPLES, (1.22, True)), ([1.6] * 5, (1.6, True))],
    "ended by the first prompt that contradicts a search": [([2.6] * MIN_SAMPLES + [1.04], (1.04, True))],
    "ended at once only at what we count ourselves": [([2.6] * MIN_SAMPLES + [0.6], (1.0, True))],
}


@pytest.mark.parametrize("steps", MEASURED.values(), ids=MEASURED)
def test_a_ratio_is(steps: list[tuple[list[float], tuple[float, bool]]], found: Learning, tmp_path: Path) -> None:
    for measured, ratio in steps:
        use(found, *measured)
        assert found.ratio("m", "bytes") == learning(tmp_path).ratio("m", "bytes") == ratio


def test_where_prompts_may_be_cut_one_response_is_enough_and_a_low_count_is_no_sample(found: Learning) -> None:
    for measured in ([1.2], [0.8] * 9):
        use(found, *measured, may_cut=True)
        assert found.ratio("m", "bytes") == (1.2, True)


def test_a_count_of_a_refusal_raises_the_ratio_at_once_and_only_nine_lower_ones_contradict_it(found: Learning) -> None:
    use(found, *[1.0] * MIN_SAMPLES)
    found.note_count("m", "bytes", 30_000, 39_000)
    assert found.ratio("m", "bytes") == (1.31, True)
    found.note_count("m", "bytes", 30_000, 36_000)
    use(found, *[1.0] * 8)
    assert found.ratio("m", "bytes") == (1.31, True)
    use(found, 1.0)
    assert found.ratio("m", "bytes") == (1.0, True)


@pytest.mark.parametrize(("estimate", "counted"), [(999, 1_200), (10_000, 35_000), (10_000, 4_000), (0, 5)])
def test_a_count_that_cannot_be_of_this_prompt_teaches_nothing(
    estimate: int, counted: int, found: Learning, tmp_path: Path
) -> None:
    found.note_count("m", "bytes", estimate, counted)
    use(found, *[counted / max(1, estimate)] * 5, estimate=estimate)
    assert found.ratio("m", "bytes") == (1.0, False)
    off = learning(tmp_path / "off", enabled=False)
    off.note_count("m", "bytes", 30_000, 36_000)
    assert off.ratio("m", "bytes") == (1.0, False)


def test_a_prompt_that_was_taken_refutes_a_single_refusal_without_a_number_as_well(found: Learning) -> None:
    for _ in range(3):
        refused(found, 30_000)
        found.note_passed("m", 31_000)
    assert found.limits("m") is None


def test_one_refusal_that_names_no_limit_bounds_the_prompt(found: Learning, tmp_path: Path) -> None:
    with capture_logs() as log:
        refused(found, 30_000, reply=9_000)
        refused(found, 40_000)
    limits, phrase = found.limits("m") or pytest.fail("nothing learned")
    assert (limits.window_tokens, limits.input_tokens) == (27_000, 18_000)
    assert phrase == "inferred from refusals that name no limit"
    assert [(line["lesson"], line["value"]) for line in log] == [(facts.SEARCH, 18_000)]
    refused(found, 12_000)
    assert (learning(tmp_path).limits("m") or pytest.fail("forgotten"))[0].input_tokens == 7_200


def test_what_was_accepted_is_the_lower_bound_and_a_pass_near_the_guess_raises_it(
    found: Learning, tmp_path: Path
) -> None:
    for tokens in (20_000, 26_000, 24_000):
        found.note_passed("m", tokens)
    refused(found, 30_000)
    version = found.version
    assert guess(found) == 26_000
    found.note_passed("m", 23_000)
    assert (guess(found), found.version) == (26_000, version)
    found.note_passed("m", 25_000)
    assert (guess(found), guess(learning(tmp_path)), found.version) == (28_000, 28_000, version + 1)
    found.note_passed("m", 30_000)
    assert (guess(found), found.limits("m")) == (None, None)


def test_a_second_send_that_is_accepted_raises_nothing(found: Learning) -> None:
    refused(found, 30_000)
    found.note_passed("m", 17_500, is_first=False)
    assert guess(found) == 18_000
    found.note_passed("m", 17_000)
    assert guess(found) == 23_500


def test_a_refusal_without_a_word_only_makes_the_next_second_send_smaller(found: Learning) -> None:
    found.note_suspected("m", 30_000)
    found.note_suspected("m", 14_000)
    assert found.limits("m") is None
    assert found.search_after("m", 31_000, 0).guess == 8_400
    found.note_passed("m", 14_000)
    assert found.search_after("m", 31_000, 0).guess == 14_000
    assert found.search_after("m", 31_000, None).guess == 18_600, "prompts alone say nothing of both together"


def test_a_limit_that_is_named_takes_the_place_of_what_was_inferred(found: Learning) -> None:
    refused(found, 30_000)
    found.note_refusal("m", refusal(60_000), BELIEVED)
    assert (found.limits("m") or pytest.fail("nothing learned"))[0].input_tokens is None
    assert window(found) == 60_000


@pytest.mark.parametrize("tokens", [0, -5, 10**9])
def test_an_absurd_prompt_bounds_nothing(tokens: int, found: Learning) -> None:
    found.note_unnamed_refusal("m", Search(tokens, tokens // 2))
    assert found.limits("m") is None


def test_a_ratio_holds_for_the_counter_that_it_was_learned_with(found: Learning, tmp_path: Path) -> None:
    use(found, *[1.22] * MIN_SAMPLES)
    assert found.ratio("m", "bytes:qwen") == (1.0, False)
    for _ in range(MIN_SAMPLES):
        found.note_usage("m", "bytes:qwen", 10_000, 9_900, "req-1")
    assert learning(tmp_path).ratio("m", "bytes:qwen") == (0.99, True)
    assert learning(tmp_path).ratio("m", "bytes") == (1.22, True)


def test_a_ratio_that_wanders_moves_nothing_and_writes_nothing(found: Learning, tmp_path: Path) -> None:
    use(found, *[1.22] * MIN_SAMPLES)
    written = (tmp_path / "lessons.json").stat()
    use(found, *[1.17, 1.24, 1.18, 1.25, 1.16] * 10)
    assert found.ratio("m", "bytes") == (1.22, True)
    assert (tmp_path / "lessons.json").stat().st_ino == written.st_ino


IN_CHARACTERS = refusal(90_000, unit=Unit.CHARS, limit_scope=Scope.INPUT)
LESSONS = {
    "refused": lambda found, by: found.learn("m", {f"{facts.REFUSES}vision": 1}, by),
    "results_hold_text": lambda found, by: found.learn("m", {facts.RESULTS_HOLD_TEXT: 1}, by),
    "refuses_our_tool": lambda found, by: found.learn("m", {facts.REFUSES_OUR_TOOL: 1}, by),
    "cuts_silently": lambda found, by: found.note_cut("m", 4_096, 32_768, by),
    "rate_tokens": lambda found, by: found.learn("m", {facts.RATE: 6_000}, by),
    "at_most": lambda found, by: found.learn("m", {f"{facts.AT_MOST}images": 50}, by),
    "input_chars": lambda found, by: found.note_refusal("m", IN_CHARACTERS, None, by),
    "window_tokens": lambda found, by: found.note_refusal("m", refusal(60_000), None, by),
    "input_tokens": lambda found, by: refused(found, 20_000, by),
}


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_binds_the_tenant_that_met_it_and_nobody_else(tmp_path: Path, name: str) -> None:
    def learned_limit(found: Learning, by: str | None) -> object:
        limits = found.limits("m", by)
        return limits and getattr(limits[0], name)

    found = learning(tmp_path)
    LESSONS[name](found, "one")
    assert learned_limit(found, "one")
    assert learned_limit(learning(tmp_path), "one") == learned_limit(found, None) == learned_limit(found, "one")
    assert not learned_limit(found, "two")
    version = found.version
    LESSONS[name](found, "one")
    assert found.version == version, "it is no news"
    LESSONS[name](learning(tmp_path), "two")
    assert not learned_limit(found, "new")
    off = learning(tmp_path / "off", enabled=False)
    LESSONS[name](off, "one")
    assert off.limits("m") is None


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_lapses_a_day_after_it_was_last_met_or_after_30_if_no_refusal_would_show_it(
    tmp_path: Path, name: str
) -> None:
    clock = Clock(NOW)
    found = learning(tmp_path, clock=clock)
    LESSONS[name](found, "one")
    life = facts.KEPT_SECONDS if name == "cuts_silently" else facts.DAY
    clock.now += life / 2
    LESSONS[name](found, "one")
    version = found.version
    clock.now += life - 1
    for one in (found, again := learning(tmp_path, clock=clock)):
        one.refresh()
        assert getattr((one.limits("m", "one") or pytest.fail("forgotten"))[0], name)
    assert found.version == version
    clock.now += 2
    for one in (found, again):
        one.refresh()
        assert one.limits("m", "one") is None
    assert found.version > version


def test_a_search_that_has_lapsed_begins_where_it_was(tmp_path: Path) -> None:
    clock = Clock(NOW)
    found = learning(tmp_path, clock=clock)
    refused(found, 40_000)
    found.note_passed("m", 23_000)
    assert guess(found) == 31_500
    clock.now += facts.DAY + 1
    found.refresh()
    assert found.limits("m") is None
    for one in (found, learning(tmp_path, clock=clock)):
        assert one.search_after("m", 38_000, 0).guess == 31_500
        assert one.search_after("m", 30_000, 0, fixed=1).guess == (23_000 if one is found else 18_000)
    refused(found, 38_000)
    assert guess(found) == guess(learning(tmp_path, clock=clock)) == 31_500


def test_a_lapsed_refusal_does_not_bring_back_an_older_cut(tmp_path: Path) -> None:
    clock = Clock(NOW)
    found = learning(tmp_path, clock=clock)
    found.note_cut("m", 4_096, None)
    found.note_refusal("m", refusal(8_192), None)
    clock.now += facts.DAY + 1
    found.refresh()
    assert found.limits("m") is None


def test_a_limit_that_a_prompt_has_passed_does_not_come_back(tmp_path: Path) -> None:
    clock = Clock(NOW)
    found = learning(tmp_path, clock=clock)
    found.note_cut("m", 4_096, 4_096, "one")
    found.note_prompt("m", 9_000, "two")
    assert (window(found, by="one"), window(found, by="two")) == (4_096, None)
    clock.now += 2 * facts.DAY
    found.refresh()
    assert (window(found, by="one"), window(found, by="two")) == (4_096, None)


def test_a_ratio_binds_the_tenant_that_taught_it_and_holds_as_long_as_it_is_used(tmp_path: Path) -> None:
    clock = Clock(NOW)
    found = learning(tmp_path, clock=clock)
    use(found, *[1.5] * MIN_SAMPLES, by="one")
    assert found.ratio("m", "bytes", "one") == found.ratio("m", "bytes") == (1.5, True)
    assert found.ratio("m", "bytes", "two") == (1.0, False)
    for _ in range(10):
        clock.now += facts.KEPT_SECONDS / 3
        use(found, 1.5, by="one")
    clock.now += facts.KEPT_SECONDS - 1
    assert learning(tmp_path, clock=clock).ratio("m", "bytes", "one") == (1.5, True)
    clock.now += 1
    assert learning(tmp_path, clock=clock).ratio("m", "bytes", "one") == (1.0, False)


def test_the_number_of_rows_is_bounded_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MAX_ROWS", 20)
    found = learning(tmp_path)
    for number in range(25):
        found.note_refusal(f"m{number}", refusal(60_000), BELIEVED, f"tenant {number}")
    assert (len(found.known), len(found.models)) == (20, 20)
    assert (found.limits("m4"), window(found, "m5"), window(found, "m24")) == (None, 60_000, 60_000)
    found.learn("m100", {facts.REFUSES_OUR_TOOL: 1})
    assert found.limits("m100") is not None, "a full table still learns"


OTHER_FORM = "not what this release writes"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((content, OTHER_FORM) for content in (b"", b"{", b"\xff\xfe", b"[1]", b'{"x": {"m": {"window_tokens": 1}}}')),
        (b'{"http://upstream/v1": {"m": {"facts": {"ratio bytes": {"": [-1, 0]}}}}}', OTHER_FORM),
        (b'{"http://upstream/v1": {"m": {"window_tokens": 60000, "taught": 5}}}', OTHER_FORM),
        (None, "Is a directory"),
    ],
)
def test_a_file_that_is_none_of_ours_is_reported_once_and_replaced_by_the_next_lesson(
    content: bytes | None, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "lessons.json"
    file.mkdir() if content is None else file.write_bytes(content)
    with capture_logs() as log:
        found = learning(tmp_path)
        found.refresh()
    assert [(line["event"], line["reason"]) for line in log] == [("learning_not_read", reason)]
    assert (found.known, found.ratio("m", "bytes")) == ({}, (1.0, False))
    found.note_refusal("m", refusal(60_000), BELIEVED)
    assert window(learning(tmp_path)) == (60_000 if content is not None else None)


def test_a_cut_to_the_window_that_the_server_states_needs_no_second_tenant(found: Learning) -> None:
    found.note_cut("m", 4_096, 4_096, "one")
    assert window(found, by="new") == 4_096


def test_a_cut_takes_the_place_of_what_the_tenants_refusals_taught_and_a_later_refusal_that_of_the_cut(
    tmp_path: Path,
) -> None:
    clock = Clock(NOW)
    found = learning(tmp_path, clock=clock)
    found.note_refusal("m", refusal(8_192), None, "one")
    found.note_refusal("m", refusal(16_384), None, "two")
    found.note_cut("m", 4_096, None, "one")
    assert (window(found, by="one"), window(found, by="two"), window(found, by="new")) == (4_096, 16_384, None)
    clock.now += 5
    found.note_refusal("m", refusal(16_384), None, "one")
    assert found.limits("m", "one") == (ModelLimits(16_384, certainty=Certainty.LEARNED), "learned from a refusal")


def test_an_upstream_that_counts_far_less_has_cut_the_prompt_and_teaches_nothing(found: Learning) -> None:
    with capture_logs() as log:
        use(found, *[0.3] * 4)
    assert {line["event"] for line in log} == {TRUNCATED}
    assert found.ratio("m", "bytes") == (1.0, False)
    use(found, *[1.2] * MIN_SAMPLES)
    with capture_logs() as log:
        use(found, 0.8, may_cut=True)
    (line,) = log
    assert (line["log_level"], line["request_id"], line["model"]) == ("warning", "req-1", "m")
    assert (line["event"], line["estimate_tokens"], line["prompt_tokens"]) == (TRUNCATED, 12_000, 8_000)


def test_hosts_whose_clocks_differ_believe_one_another(tmp_path: Path) -> None:
    ahead, behind = Clock(NOW), Clock(NOW)
    behind.now -= 100
    learning(tmp_path, clock=ahead).note_refusal("m", refusal(60_000), BELIEVED)
    assert window(learning(tmp_path, clock=behind)) == 60_000


def test_a_lesson_from_a_clock_that_was_ahead_is_forgotten_when_the_clock_is_corrected(tmp_path: Path) -> None:
    clock = Clock(NOW)
    found = learning(tmp_path, clock=clock)
    clock.now += 10 * facts.KEPT_SECONDS
    found.note_refusal("m", refusal(60_000), BELIEVED)
    version = found.version
    clock.now -= 10 * facts.KEPT_SECONDS
    for _ in range(2):
        found.refresh()
    assert (window(found), found.version) == (None, version + 1)
    found.note_refusal("m", refusal(50_000), BELIEVED)
    found.note_refusal("m", refusal(70_000), BELIEVED)
    assert window(found) == window(learning(tmp_path, clock=clock)) == 70_000


def test_a_limit_that_others_state_is_not_kept_so_that_they_can_change_their_minds(found: Learning) -> None:
    found.note_refusal("m", refusal(BELIEVED), BELIEVED)
    assert found.limits("m") is None
    found.note_refusal("m", refusal(BELIEVED, limit_scope=Scope.INPUT), BELIEVED)
    assert found.limits("m") is not None, "a window says nothing of the input"


@pytest.mark.parametrize("scope", [Scope.WINDOW, Scope.INPUT])
def test_a_prompt_that_was_taken_refutes_a_limit_that_it_passes(scope: Scope, found: Learning, tmp_path: Path) -> None:
    found.note_refusal("m", refusal(60_000, limit_scope=scope), BELIEVED)
    version = found.version
    found.note_usage("m", "bytes", 60_000, 60_000, "req-1")
    assert (window(found), found.version) == (60_000, version)
    with capture_logs() as log:
        found.note_usage("m", "bytes", 60_001, 60_001, "req-1")
    assert (found.limits("m"), learning(tmp_path).limits("m"), found.version) == (None, None, version + 1)
    assert [(line["lesson"], line["value"]) for line in log] == [(scope.value, 0)]


def test_what_one_worker_learns_the_other_knows_after_a_refresh(tmp_path: Path) -> None:
    first, second = learning(tmp_path), learning(tmp_path)
    version = second.version
    first.note_refusal("m", refusal(60_000), BELIEVED)
    assert second.limits("m") is None
    second.refresh()
    second.refresh()
    assert (window(second), second.version) == (60_000, version + 1)
    use(second, *[1.22] * MIN_SAMPLES)
    first.refresh()
    assert (window(first), first.ratio("m", "bytes")) == (60_000, (1.22, True))


def test_samples_that_are_not_adopted_yet_survive_what_others_write(tmp_path: Path) -> None:
    first, second = learning(tmp_path), learning(tmp_path)
    use(first, *[1.22] * (MIN_SAMPLES - 1))
    second.note_refusal("other", refusal(60_000), BELIEVED)
    first.refresh()
    use(first, 1.22)
    assert first.ratio("m", "bytes") == (1.22, True)


def test_upstreams_do_not_mix(tmp_path: Path) -> None:
    first, second = learning(tmp_path), learning(tmp_path, "http://other/v1")
    first.note_refusal("m", refusal(60_000), BELIEVED)
    second.note_refusal("m", refusal(70_000), BELIEVED)
    assert (window(learning(tmp_path)), window(learning(tmp_path, "http://other/v1"))) == (60_000, 70_000)


def test_a_file_that_breaks_later_takes_nothing_away(found: Learning, tmp_path: Path) -> None:
    found.note_refusal("m", refusal(60_000), BELIEVED)
    (tmp_path / "lessons.json").write_bytes(b"{")
    found.refresh()
    assert window(found) == 60_000


def test_where_nothing_can_be_written_the_process_knows_and_the_log_says_so(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file in its place")
    found = learning(tmp_path / "folder")
    with capture_logs() as log:
        found.note_refusal("m", refusal(60_000), BELIEVED)
        use(found, *[1.22] * MIN_SAMPLES)
        found.refresh()
    assert (window(found), found.ratio("m", "bytes")) == (60_000, (1.22, True))
    assert [line["event"] for line in log if line["log_level"] == "warning"] == ["learning_not_kept"] * 2


def test_erasing_makes_every_worker_forget(tmp_path: Path) -> None:
    first, second = learning(tmp_path), learning(tmp_path)
    first.note_refusal("m", refusal(60_000), BELIEVED)
    second.refresh()
    for _ in range(2):
        first.erase()  # there may be nothing
    second.refresh()
    assert (first.limits("m"), second.limits("m"), learning(tmp_path).limits("m")) == (None, None, None)
    second.note_refusal("n", refusal(60_000), BELIEVED)
    first.refresh()
    assert (first.limits("m"), window(first, "n")) == (None, 60_000)


def test_what_was_erased_does_not_come_back_with_what_another_worker_measures(tmp_path: Path) -> None:
    first, second = learning(tmp_path), learning(tmp_path)
    first.note_refusal("m", refusal(60_000), BELIEVED)
    second.refresh()
    use(second, *[1.22] * (MIN_SAMPLES - 1))
    first.erase()
    use(second, 1.22)
    assert (second.limits("m"), learning(tmp_path).limits("m")) == (None, None)


def test_erasing_one_model_leaves_the_others_and_says_what_went(tmp_path: Path) -> None:
    first, second = learning(tmp_path), learning(tmp_path)
    for name in ("m", "n"):
        first.note_refusal(name, refusal(60_000), BELIEVED)
    second.refresh()
    assert first.erase("m") == [(first.upstream, "m")]
    assert first.erase("m") == []
    second.refresh()
    assert (first.limits("m"), second.limits("m"), learning(tmp_path).limits("m")) == (None, None, None)
    assert [window(one, "n") for one in (first, second, learning(tmp_path))] == [60_000] * 3


def test_when_learning_is_off_nothing_is_noted_and_nothing_known(tmp_path: Path) -> None:
    learning(tmp_path).note_refusal("m", refusal(60_000), BELIEVED)
    before = (tmp_path / "lessons.json").read_bytes()
    found = learning(tmp_path, enabled=False)
    refused(found, 30_000)
    found.note_passed("m", 14_900)
    found.note_refusal("n", refusal(60_000), BELIEVED)
    use(found, *[1.22] * MIN_SAMPLES)
    assert (found.limits("m"), found.limits("n"), found.ratio("m", "bytes")) == (None, None, (1.0, False))
    assert (tmp_path / "lessons.json").read_bytes() == before


@given(st.text(st.characters(), max_size=40) | st.just("x" * 100_000) | st.just("\ud800/../../etc"))
def test_any_models_name_is_a_key_of_the_file_and_no_path(model: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, capture_logs() as log:
        found = learning(Path(folder))
        found.note_refusal(model, refusal(60_000), BELIEVED)
        assert window(found, model) == window(learning(Path(folder)), model) == 60_000
        assert sorted(os.listdir(folder)) == ["lessons.json", "lessons.lock"]
        assert (Path(folder) / "lessons.json").stat().st_size < 2_000
    assert len(json.dumps(log)) < 3_000


def _learn_some(folder: Path, worker: int, start: Any) -> None:
    found = learning(folder)
    start.wait()
    for number in range(20):
        found.note_refusal(f"m{worker}-{number}", refusal(60_000), BELIEVED)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a lock may take its time."""
    monkeypatch.setattr("proxy.shell.resources.whole_files._LOCK_TRIES", 10_000)


@pytest.mark.usefixtures("patient")
def test_four_workers_that_learn_at_once_lose_nothing(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    start = fork.Event()
    workers = [fork.Process(target=_learn_some, args=(tmp_path, worker, start)) for worker in range(4)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert len(learning(tmp_path).models) == 80


def test_two_containers_that_write_at_once_without_a_lock_each_write_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    first, second, replace = learning(tmp_path), learning(tmp_path), os.replace

    def meanwhile(written: Path, place: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        second.note_refusal("m", refusal(60_000), BELIEVED)
        replace(written, place)

    monkeypatch.setattr(os, "replace", meanwhile)
    with capture_logs() as log:
        first.note_refusal("n", refusal(70_000), BELIEVED)
    assert [line["event"] for line in log] == ["lesson_learned"] * 2
    assert window(learning(tmp_path), "n") == 70_000
    assert sorted(os.listdir(tmp_path)) == ["lessons.json", "lessons.lock"]


CUT = "learned from usage: the upstream cut a prompt without a word"


def test_a_window_that_usage_has_proven_is_kept_with_its_witness(tmp_path: Path) -> None:
    learning(tmp_path).note_cut("m", 4_096, 32_768)
    assert learning(tmp_path).limits("m") == (ModelLimits(4_096, certainty=Certainty.LEARNED, cuts_silently=True), CUT)
    assert learning(tmp_path, enabled=False).limits("m") is None


def test_a_window_that_usage_has_proven_ends_with_another_word_of_the_server_or_a_larger_prompt(
    found: Learning,
) -> None:
    found.note_cut("m", 4_096, 32_768)
    for allocated in (32_768, 4_096, 2_048):
        found.note_allocated("m", allocated)
        assert window(found) == 4_096, "the server said so then, too, or says no more"
    found.note_allocated("m", 64_000)
    assert found.limits("m") is None
    found.note_cut("m", 4_096, None)
    found.note_usage("m", "bytes", 9_000, 9_000, "req-1")
    assert found.limits("m") is None


@pytest.mark.parametrize(("fact", "name"), [(facts.RATE, "rate_tokens"), (facts.RATE_OF_PROMPTS, "prompt_rate_tokens")])
def test_a_rate_is_learned_apart_from_the_window_and_refuted_for_its_key_alone(
    found: Learning, fact: str, name: str
) -> None:
    for by, tokens in (("one", 6_000), ("two", 8_000), ("off", 511)):
        found.learn("m", {fact: tokens}, by)
    limits_by_key = [found.limits("m", by) for by in ("one", "two", "off")]
    expected = [ModelLimits(**{name: tokens}) for tokens in (6_000, 8_000)]
    assert limits_by_key == [*((limits, "learned from a refusal") for limits in expected), None]
    found.note_prompt("m", 8_100, "one")
    found.note_prompt("m", 8_000, "two")
    assert (found.limits("m", "one"), found.limits("m", "two")) == (None, limits_by_key[1])


def test_a_later_and_larger_word_of_the_server_itself_beats_what_its_refusals_taught(
    found: Learning, tmp_path: Path
) -> None:
    found.note_refusal("m", refusal(4_096), None, "one")
    found.note_allocated("m", 4_096)
    assert window(found, by="one") == 4_096
    found.note_allocated("m", 16_384)
    assert window(found, by="one") is None
    refused(found, 20_000, "two")
    learning(tmp_path).note_allocated("m", 16_384)
    assert guess(found, "two") == 12_000, "that was met since"
    found.note_allocated("m", 32_768)
    assert guess(found, "two") is None
