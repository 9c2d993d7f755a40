"""Generators of JSON as bytes, in every spelling that a client may choose, with the pieces that it is made of."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

BLANKS = st.sampled_from([b"", b"", b"", b" ", b"\n", b"\t ", b"\r\n  "])

NUMBERS = st.one_of(
    st.integers().map(lambda number: b"%d" % number),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: json.dumps(number).encode()),
    st.sampled_from([b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"1E+2", b"9" * 5_000]),
)


def spelled(text: str, how: str) -> bytes:
    """A JSON string: as UTF-8, with ASCII only, or with every character escaped."""
    if how == "escaped":
        units = text.encode("utf-16-be", "surrogatepass")
        return b'"' + b"".join(b"\\u%02x%02x" % pair for pair in zip(units[::2], units[1::2], strict=True)) + b'"'
    if how == "utf-8":
        try:
            return json.dumps(text, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # a lone surrogate has no UTF-8
            pass
    return json.dumps(text).encode()


SPELLINGS = st.sampled_from(["utf-8", "utf-8", "ascii", "escaped"])
ANY_TEXT = st.text(st.characters(categories=None), max_size=12)  # with lone surrogates and control characters
LONG_TEXTS = st.builds(lambda unit, times: unit * times, st.text(min_size=1, max_size=5), st.integers(1, 4_000))
TEXTS = st.one_of(
    ANY_TEXT, ANY_TEXT, LONG_TEXTS, st.sampled_from(['"messages":[', "]}", "\\u006d", "messages", "\ud800"])
)
STRINGS = st.builds(spelled, TEXTS, SPELLINGS)
ATOMS = st.one_of(STRINGS, STRINGS, NUMBERS, st.sampled_from([b"null", b"true", b"false", b'"\xff"']))


@st.composite
def arrays_of(draw: Any, items: st.SearchStrategy[bytes], max_size: int = 4) -> tuple[bytes, list[bytes]]:
    """An array, and its items."""
    found = draw(st.lists(items, max_size=max_size))
    return spelled_array(found, draw(BLANKS)), found


def spelled_array(items: list[bytes], blank: bytes = b"") -> bytes:
    between = blank + b"," + blank
    return b"[" + blank + between.join(items) + blank + b"]"


def spelled_object(members: list[tuple[bytes, bytes]], blank: bytes = b"") -> bytes:
    between = blank + b"," + blank
    return b"{" + blank + between.join(name + blank + b":" + blank + value for name, value in members) + blank + b"}"


def _nested(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    members = st.lists(st.tuples(STRINGS, inner), max_size=3)
    return st.one_of(arrays_of(inner).map(lambda made: made[0]), st.builds(spelled_object, members, BLANKS))


VALUES = st.one_of(ATOMS, _nested(ATOMS), _nested(st.one_of(ATOMS, _nested(ATOMS))))
"""Any JSON value, nested up to three deep."""


@st.composite
def messages(draw: Any) -> bytes:
    """A message as clients send them, in any spelling, with members that nobody knows; sometimes any value at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    role = draw(st.sampled_from(["system", "user", "assistant", "tool", "developer"]))
    members = [(b'"role"', spelled(role, draw(SPELLINGS))), (b'"content"', draw(st.one_of(STRINGS, VALUES)))]
    if role == "assistant" and draw(st.booleans()):
        call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": draw(ANY_TEXT)}}
        members.append((b'"tool_calls"', json.dumps([call]).encode()))
    if role == "tool":
        members.append((b'"tool_call_id"', b'"call_1"'))
    members += draw(st.lists(st.tuples(STRINGS, VALUES), max_size=1))
    return spelled_object(draw(st.permutations(members)), draw(BLANKS))


MESSAGE_LISTS = st.one_of(
    st.lists(messages(), max_size=5),
    st.builds(lambda some, times: some * times, st.lists(messages(), min_size=1, max_size=3), st.integers(5, 60)),
)
"""Few messages, or up to 180."""
