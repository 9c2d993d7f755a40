"""Two versions of what was learned, put together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.models.facts import Fact
from proxy.shell.models.knowledge import MAX_MODELS, Knowledge, Refusals, merged

TENANTS = st.dictionaries(
    st.sampled_from("abc"), st.builds(Refusals, window_tokens=st.sampled_from([None, 4_096, 8_192])), max_size=3
)
OF = st.dictionaries(
    st.sampled_from("abc"), st.builds(Fact, st.sampled_from([0, 1, 2]), st.sampled_from([5, 9])), min_size=1
)
FACTS = st.dictionaries(st.sampled_from(["ratio bytes", "cut to"]), OF)
KNOWLEDGE = st.builds(
    Knowledge,
    window_tokens=st.sampled_from([None, 4_096, 8_192]),
    of_keys=TENANTS,
    facts=FACTS,
    taught=st.sampled_from([0, 5, 9]),
)
KNOWN = st.dictionaries(st.sampled_from(["m", "n", "o"]), KNOWLEDGE, max_size=3)
OLD = Knowledge(window_tokens=8_192, taught=5)


@given(KNOWN, KNOWN)
def test_what_only_one_side_has_changed_is_adopted(base, changed):
    assert merged(base, base, changed) == changed
    here = {**base, **changed}
    assert merged(base, here, base) == here


@given(KNOWN, KNOWN)
def test_two_that_have_learned_the_same_agree(base, found):
    assert merged(base, found, found) == found


@given(KNOWN, KNOWN, KNOWN)
def test_once_agreed_there_is_nothing_more_to_say(base, mine, theirs):
    agreed = merged(base, mine, theirs)
    assert merged(mine, mine, agreed) == agreed
    assert merged(agreed, agreed, agreed) == agreed


@given(KNOWN, KNOWN, KNOWN)
def test_no_lesson_about_a_new_tenant_or_model_is_lost(base, mine, theirs):
    agreed = merged(base, mine, theirs)
    for version in (mine, theirs):
        for model, found in version.items():
            if model not in base:
                assert model in agreed
                assert found.of_keys.keys() <= agreed[model].of_keys.keys()


def test_of_two_limits_the_newer_lesson_stands():
    mine, theirs = replace(OLD, window_tokens=4_096, taught=7), replace(OLD, window_tokens=6_000, taught=9)
    assert merged({"m": OLD}, {"m": mine}, {"m": theirs})["m"] == theirs
    assert merged({"m": OLD}, {"m": theirs}, {"m": mine})["m"] == theirs


def test_what_is_too_old_here_and_was_renewed_elsewhere_stands():
    expired, renewed = Knowledge(), replace(OLD, taught=9)
    assert merged({"m": OLD}, {"m": expired}, {"m": renewed})["m"] == renewed


def test_of_two_lessons_of_one_tenant_the_newer_one_stands():
    mine, theirs = (
        replace(OLD, of_keys={"a": Refusals(window_tokens=tokens, taught=taught)})
        for tokens, taught in ((4_096, 7), (6_000, 9))
    )
    assert merged({"m": OLD}, {"m": mine}, {"m": theirs})["m"] == theirs
    assert merged({"m": OLD}, {"m": theirs}, {"m": mine})["m"] == theirs


def test_what_both_sides_have_met_is_known_to_both():
    seen = {"vision": {"a": Fact(1, 6)}, "audio": {"b": Fact(1, 6)}}
    mine = replace(OLD, facts={"vision": seen["vision"]}, of_keys={"a": Refusals(window_tokens=4_096)}, taught=6)
    theirs = replace(OLD, facts={"audio": seen["audio"]}, of_keys={"b": Refusals(window_tokens=4_096)}, taught=6)
    agreed = merged({"m": OLD}, {"m": mine}, {"m": theirs})["m"]
    assert agreed.facts == seen
    assert set(agreed.of_keys) == {"a", "b"}


def test_what_the_other_side_has_given_up_goes_here_too_and_the_other_way_round_it_stays():
    given_up = {"n": OLD}
    assert merged({"m": OLD, "n": OLD}, {"m": OLD, "n": OLD}, given_up) == given_up
    assert merged({"m": OLD, "n": OLD}, given_up, {"m": OLD, "n": OLD}) == {"m": OLD, "n": OLD}


def test_the_number_of_models_is_bounded():
    mine = {f"mine-{number}": OLD for number in range(MAX_MODELS)}
    theirs = {f"theirs-{number}": OLD for number in range(MAX_MODELS)}
    assert len(merged({}, mine, theirs)) == MAX_MODELS
