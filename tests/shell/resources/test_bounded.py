from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.resources import BoundedMap

PUTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), max_size=40)


def test_nothing_can_be_remembered_of_a_key():
    found: BoundedMap[str, None] = BoundedMap(2)
    found.put("a", None)
    assert "a" in found
    assert "b" not in found
    assert found.pop("a") is None
    assert len(found) == 0


@given(PUTS, st.integers(1, 4), st.integers(0, 12))
def test_a_map_is_bounded_in_number_and_bytes_and_holds_the_newest(puts, most, max_bytes):
    found: BoundedMap[int, int] = BoundedMap(most, max_bytes)
    reported: OrderedDict[int, int] = OrderedDict()
    for key, size in puts:
        gone = [key for key, _ in found.put(key, size, size)]
        reported.pop(key, None)
        reported[key] = size
        assert gone == ([key] if size > max_bytes else list(reported)[: len(gone)])
        for one in gone:
            del reported[one]
        assert list(reported.items()) == [(key, found.get(key)) for key in found]
        assert found.held_bytes == sum(reported.values()) <= max_bytes
        assert len(found) <= most
