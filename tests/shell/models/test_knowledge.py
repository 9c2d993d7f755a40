"""Several versions of what was learned, merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.models import Fact, Search
from proxy.core.overflow import Scope, Unit
from proxy.shell.models.knowledge import MAX_KEYS, MAX_MODELS, Knowledge, Refusals, merged, with_model

WINDOWS = st.sampled_from([None, 4_096, 8_192])
TIMES = st.sampled_from([0.0, 5.0, 9.0])
SEARCHES = st.none() | st.builds(Search, st.sampled_from([4_096, 9_000]), st.sampled_from([2_000, 3_000]))
TENANTS = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(Refusals, window_tokens=WINDOWS, unnamed=SEARCHES, taught=st.sampled_from([0, 5, 9]), at=TIMES),
    max_size=3,
)
OF = st.dictionaries(
    st.sampled_from("abc"), st.builds(Fact, st.sampled_from([0, 1, 2]), st.sampled_from([5, 9])), min_size=1
)
FACTS = st.dictionaries(st.sampled_from(["ratio bytes", "cut to"]), OF)
KNOWLEDGE = st.builds(
    Knowledge, window_tokens=WINDOWS, of_keys=TENANTS, facts=FACTS, taught=st.sampled_from([0, 5, 9]), at=TIMES
)
KNOWN = st.dictionaries(st.sampled_from(["m", "n", "o"]), KNOWLEDGE, max_size=3)
OLD = Knowledge(window_tokens=8_192, taught=5, at=5)


@given(KNOWN, KNOWN, KNOWN)
def test_any_order_of_merging_gives_the_same(one, other, third):
    assert merged(one, one) == one
    assert merged(one, other) == merged(other, one)
    assert merged(merged(one, other), third) == merged(one, merged(other, third))
    assert merged(merged(one, other), other) == merged(one, other)


CHANGES = {
    "a limit": lambda known: known.taught_by("a", known.of("a").with_limit(4_096, Scope.WINDOW)),
    "a larger limit": lambda known: known.taught_by("a", known.of("a").with_limit(8_192, Scope.WINDOW)),
    "a refutation": lambda known: known.refuted_by(9_000, "a", 1.0),
    "a confirmation": lambda known: known.adopted(4_096, Scope.WINDOW, Unit.TOKENS),
    "a cut": lambda known: known.with_cut("a", 2_048, None, 1.0),
    "an allocation": lambda known: known.without_limits_under(16_384),
    "a pass": lambda known: known.after_pass_of("a", 9_000),
}


@given(KNOWN, KNOWN, st.sampled_from(sorted(CHANGES)), st.sampled_from([0.0, 7.0, 20.0]))
def test_a_change_beats_the_version_that_it_was_made_from_whatever_the_clock_says(before, other, change, now):
    """So nothing that was refuted here comes back from a replica that has not heard of it."""
    known = merged(before, other)
    changed = with_model(known, "m", CHANGES[change], now)
    assert merged(known, changed) == merged(changed, known) == changed


@given(KNOWN, KNOWN)
def test_no_lesson_about_a_tenant_or_model_is_lost(one, other):
    both = merged(one, other)
    for version in (one, other):
        for model, found in version.items():
            assert found.of_keys.keys() <= both[model].of_keys.keys()
            assert {(name, by) for name, of in found.facts.items() for by in of} <= {
                (name, by) for name, of in both[model].facts.items() for by in of
            }


def test_of_two_limits_the_newer_one_holds():
    older, newer = replace(OLD, window_tokens=4_096, at=7), replace(OLD, window_tokens=6_000, at=9)
    assert merged({"m": older}, {"m": newer})["m"] == newer


def test_of_two_lessons_of_one_tenant_the_newer_one_holds():
    older, newer = (
        replace(OLD, of_keys={"a": Refusals(window_tokens=tokens, taught=taught)})
        for tokens, taught in ((4_096, 7), (6_000, 9))
    )
    assert merged({"m": older}, {"m": newer})["m"] == newer


def test_what_both_sides_have_met_is_known_to_both():
    seen = {"vision": {"a": Fact(1, 6)}, "audio": {"b": Fact(1, 6)}}
    mine = replace(OLD, facts={"vision": seen["vision"]}, of_keys={"a": Refusals(window_tokens=4_096)})
    theirs = replace(OLD, facts={"audio": seen["audio"]}, of_keys={"b": Refusals(window_tokens=4_096)})
    both = merged({"m": mine}, {"m": theirs})["m"]
    assert both.facts == seen
    assert set(both.of_keys) == {"a", "b"}


def test_the_numbers_of_models_and_tenants_are_bounded_and_the_newest_stay():
    mine = {f"mine-{number}": replace(OLD, at=number) for number in range(MAX_MODELS)}
    theirs = {f"theirs-{number}": replace(OLD, at=number) for number in range(MAX_MODELS)}
    both = merged(mine, theirs)
    assert len(both) == MAX_MODELS
    assert set(both) == {name for name in (*mine, *theirs) if int(name.partition("-")[2]) >= MAX_MODELS // 2}
    one, other = (
        replace(OLD, of_keys={f"{name}-{number}": Refusals(taught=number) for number in range(MAX_KEYS)})
        for name in ("mine", "theirs")
    )
    found = merged({"m": one}, {"m": other})["m"].of_keys
    assert len(found) == MAX_KEYS
    assert min(own.taught for own in found.values()) == MAX_KEYS // 2
