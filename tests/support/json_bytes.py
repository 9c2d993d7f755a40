"""Generators of JSON as bytes, in every spelling that a client may choose, with the pieces that it is made of."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from support.shuffled import shuffled

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
        return b'"' + (r"\u" + units.hex("-", 2).replace("-", r"\u") if units else "").encode() + b'"'
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


def spelled_array(items: list[bytes], blank: bytes = b"") -> bytes:
    between = blank + b"," + blank
    return b"[" + blank + between.join(items) + blank + b"]"


def spelled_object(members: list[tuple[bytes, bytes]], blank: bytes = b"") -> bytes:
    between = blank + b"," + blank
    return b"{" + blank + between.join(name + blank + b":" + blank + value for name, value in members) + blank + b"}"


def _nested(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    members = st.lists(st.tuples(STRINGS, inner), max_size=3)
    arrays = st.builds(spelled_array, st.lists(inner, max_size=4), BLANKS)
    return st.one_of(arrays, st.builds(spelled_object, members, BLANKS))


VALUES = st.one_of(ATOMS, _nested(ATOMS), _nested(st.one_of(ATOMS, _nested(ATOMS))))
"""Any JSON value, nested up to three deep."""
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer"])
CONTENTS = st.one_of(STRINGS, VALUES)
MORE_MEMBERS = st.lists(st.tuples(STRINGS, VALUES), max_size=1)


@st.composite
def messages(draw: Any) -> bytes:
    """A message as clients send them, in any spelling, with unknown members; sometimes any value at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    role = draw(ROLES)
    members = [(b'"role"', spelled(role, draw(SPELLINGS))), (b'"content"', draw(CONTENTS))]
    if role == "assistant" and draw(st.booleans()):
        call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": draw(ANY_TEXT)}}
        members.append((b'"tool_calls"', json.dumps([call]).encode()))
    if role == "tool":
        members.append((b'"tool_call_id"', b'"call_1"'))
    members += draw(MORE_MEMBERS)
    return spelled_object(shuffled(draw, members), draw(BLANKS))


MESSAGES = messages()
MESSAGE_LISTS = st.one_of(
    st.lists(MESSAGES, max_size=5),
    st.builds(lambda some, times: some * times, st.lists(MESSAGES, min_size=1, max_size=3), st.integers(5, 60)),
)
"""Few messages, or up to 180."""
