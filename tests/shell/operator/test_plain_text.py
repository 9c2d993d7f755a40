from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.operator.plain_text import number, plain


@given(st.text(st.characters(categories=None)))
def test_foreign_text_cannot_steer_a_terminal_and_keeps_its_length(text):
    shown = plain(text)
    assert shown.isprintable() or "\N{REPLACEMENT CHARACTER}" in shown
    assert all(sign.isprintable() or sign == "\N{REPLACEMENT CHARACTER}" for sign in shown)
    assert len(shown) == len(text)


@given(st.text().filter(str.isprintable))
def test_what_can_be_printed_stays(text):
    assert plain(text) == text


@given(st.integers(0, 10**12))
def test_a_number_is_grouped_by_thousands_and_stays_the_same_number(count):
    groups = number(count).split(" ")
    assert int("".join(groups)) == count
    assert {len(group) for group in groups[1:]} <= {3}
    assert len(groups[0]) <= 3
