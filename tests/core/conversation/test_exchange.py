from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.conversation.exchange import ToolExchange, first_request, removable, separator
from proxy.core.conversation.message import SYSTEM_ROLES

ROLES = st.lists(st.sampled_from(["user", "assistant", "assistant", "system", "developer", "tool"]), max_size=14)


def units_of(roles, staying=()):
    return [ToolExchange(at, at + 1, role, must_stay=at in staying) for at, role in enumerate(roles)]


def kept_when_all_go(units):
    gone = {unit.start for together in removable(units) for unit in together}
    return [unit for unit in units if unit.start not in gone]


@given(ROLES, st.sets(st.integers(0, 13)))
def test_what_has_to_stay_is_never_among_what_may_go(roles, staying):
    units = units_of(roles, staying)
    gone = [unit for together in removable(units) for unit in together]
    assert len({unit.start for unit in gone}) == len(gone)
    assert first_request(units) not in gone
    assert units[-1:] == [unit for unit in units[-1:] if unit not in gone]
    assert [unit for unit in gone if unit.role in SYSTEM_ROLES] == []
    assert [unit for unit in gone if unit.must_stay and unit.role != "user"] == []
    users = [unit for unit in units if unit.role == "user"]
    assert users[-1:] == [unit for unit in users[-1:] if unit not in gone]


@given(ROLES)
def test_the_oldest_is_offered_first(roles):
    offered = [together[0].start for together in removable(units_of(roles))]
    assert offered == sorted(offered)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_no_two_user_messages_come_to_stand_in_a_row_however_much_goes(turns):
    roles = ["system"] + [role for count in turns for role in ("user", *["assistant"] * count)]
    units = units_of(roles)
    offered = removable(units)
    for count in range(len(offered) + 1):
        gone = {unit.start for together in offered[:count] for unit in together}
        left = [unit.role for unit in units if unit.start not in gone]
        assert "user user" not in " ".join(left)


def test_what_stands_between_the_first_two_user_messages_is_the_last_of_their_turn():
    units = units_of(["user", "assistant", "assistant", "system", "user", "assistant"])
    assert separator(units) is units[2]
    assert separator(units_of(["user", "assistant"])) is None
    assert separator(units_of(["user", "user"])) is None


def test_without_a_user_there_is_no_first_request():
    assert first_request(units_of(["system", "assistant"])) is None
    assert [unit.role for unit in kept_when_all_go(units_of(["assistant", "assistant"]))] == ["assistant"]
