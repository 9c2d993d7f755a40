"""A rope is told from the bytes that it holds by nothing but its memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.text.rope import Body, Rope, begins_like, held_with, views_of

PIECES = st.lists(st.binary(max_size=5), max_size=8)
PLACES = st.one_of(st.none(), st.integers(-45, 45))


@st.composite
def ropes(draw: st.DrawFn) -> tuple[Rope, bytes]:
    """A rope and its bytes; some of its contents are longer than what of them belongs to it."""
    contents = draw(PIECES)
    lengths = [draw(st.integers(0, len(content))) for content in contents]
    return Rope(contents, lengths), b"".join(content[:n] for content, n in zip(contents, lengths, strict=True))


def bodies() -> st.SearchStrategy[tuple[Body, bytes]]:
    return st.one_of(ropes(), st.binary(max_size=30).map(lambda plain: (plain, plain)))


@given(ropes(), PLACES, PLACES)
def test_a_rope_is_as_long_as_its_bytes_and_sliced_like_them(
    both: tuple[Rope, bytes], start: int | None, stop: int | None
) -> None:
    rope, plain = both
    assert (len(rope), rope[start:stop], rope[:]) == (len(plain), plain[start:stop], plain)
    assert b"".join(rope.views()) == plain


@given(ropes(), PLACES)
def test_a_joined_rope_is_held_in_one_piece_and_is_still_the_same(both: tuple[Rope, bytes], start: int | None) -> None:
    rope, plain = both
    joined = bytes(rope)
    assert joined == plain
    assert bytes(rope) is joined
    assert list(rope.pieces()) == [(joined, len(joined))]
    assert (len(rope), rope[start:]) == (len(plain), plain[start:])


def test_a_rope_has_no_slices_with_gaps() -> None:
    with pytest.raises(ValueError, match="the step of a slice of a rope must be 1, not 2"):
        Rope([b"abc"])[::2]


@given(st.data(), bodies(), bodies())
def test_bodies_begin_alike_as_their_bytes_do(
    data: st.DataObject, mine: tuple[Body, bytes], other: tuple[Body, bytes]
) -> None:
    end = data.draw(st.integers(0, len(other[1])))
    assert begins_like(mine[0], other[0], end) == mine[1].startswith(other[1][:end])


@given(st.data(), bodies(), st.binary(max_size=30))
def test_bodies_with_the_same_beginning_begin_alike_however_they_are_cut(
    data: st.DataObject, known: tuple[Body, bytes], new: bytes
) -> None:
    end = data.draw(st.integers(0, len(known[1])))
    mine = data.draw(cut(known[1][:end] + new))
    assert begins_like(mine, known[0], end)
    assert begins_like(known[0], mine, end)


@st.composite
def cut(draw: st.DrawFn, plain: bytes) -> Rope:
    """These bytes, cut anywhere."""
    at = sorted(draw(st.lists(st.integers(0, len(plain)), max_size=5)))
    return Rope([plain[a:b] for a, b in zip([0, *at], [*at, len(plain)], strict=True)])


@given(st.data(), bodies(), st.binary(max_size=30))
def test_a_body_that_goes_on_from_another_has_the_same_bytes(
    data: st.DataObject, known: tuple[Body, bytes], new: bytes
) -> None:
    end = data.draw(st.integers(0, len(known[1])))
    mine = data.draw(cut(known[1][:end] + new))
    assert bytes(held_with(known[0], mine, end)) == known[1][:end] + new
    assert bytes(known[0]) == known[1]


def turns(count: int) -> list[Body]:
    """The bodies of a conversation, each held as it goes on from the one before, but for its last bracket."""
    plain = b"x" * 100_000 + b"]"
    held: list[Body] = [plain]
    for turn in range(count):
        shared = len(plain) - 1
        plain = plain[:shared] + b"%4d" % turn * 50 + b"]"
        held.append(held_with(held[-1], Rope([plain[:1_000], plain[1_000:]]), shared))
        assert bytes(Rope([held[-1][:]])) == plain
    return held


def test_a_conversation_is_held_once_in_few_pieces() -> None:
    held = turns(100)
    first, last = held[0], held[-1]
    assert isinstance(last, Rope)
    contents = [content for content, _ in last.pieces()]
    assert contents[0] is first
    assert len(contents) < 20
    assert len(views_of(last)) == len(contents)
    assert sum(map(len, contents)) < len(last) + 100


def test_little_of_a_long_body_is_not_held_with_all_of_it() -> None:
    long = b"x" * 100_000
    short = held_with(long, Rope([b"x" * 500, b"y" * 100]), 500)
    assert isinstance(short, bytes)
    assert short == b"x" * 500 + b"y" * 100
