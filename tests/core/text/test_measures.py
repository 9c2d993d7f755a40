from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.text.measures import first_bytes, last_bytes, utf8_length


@given(st.text(st.characters(categories=None), max_size=40), st.integers(-3, 130))
def test_bytes_are_counted_off_at_the_borders_of_characters(text, count):
    begin, end = first_bytes(text, count), last_bytes(text, count)
    assert text.startswith(begin)
    assert text.endswith(end)
    for cut in (begin, end):
        assert utf8_length(cut) <= max(0, count)
        assert len(cut) == len(text) or utf8_length(cut) > count - 4
