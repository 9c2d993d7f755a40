"""Real shapes → cases that are nearly real: JSON values changed at one of their places, then spelled in one of many
ways, then damaged as bytes.

Rule: mostly one change at a time. What is wrong everywhere is refused at the first check and tests only that.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

ODD_TEXTS: Final = (
    "",
    "\x00",
    "\ud800",
    "\r\n\r\n",
    "<|endoftext|>",
    "data:image/png;base64,iVBORw0KGgo=",
    "data:;base64,%%%",
    "[context-proxy: cut]",
    "[DONE]",
    "1" * 400,
    "字" * 300,
    " " * 300,
    '{"a": "',
    "🙂\u2028\u0085",
)
_DEEP: Final = "@deep@"
"""Stands for lists in lists until the value is spelled: so deep, Python can neither copy nor write it."""
_DEPTHS: Final = (200, 1_200, 60_000)
"""The limit of nested calls is 1 000 by default."""
ODD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 0.5, 2**31, 2**63, 2**64, 10**30, 1e308, float("inf"), float("nan")),
    *([], {}, [[]], [None], {"": {}}, {"type": "text"}, {"text": 1}, [{"type": "text", "text": "x"}]),
    *ODD_TEXTS,
    *(_DEEP, _DEEP),
)
_MOST_BYTES: Final = 200_000

Place = tuple[Any, Any]
"""A list or an object, and the index or name in it."""


def nested(depth: int, inside: Any) -> Any:
    """A value within so many lists."""
    for _ in range(depth):
        inside = [inside]
    return inside


@st.composite
def mutated(draw: Any, shapes: st.SearchStrategy[Any], most: int = 3) -> Any:
    """A value of one of these shapes, changed at none or a few places."""
    value = {"": copy.deepcopy(draw(shapes))}
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, most]))):
        places = list(_places(value))
        if len(places) > 1:
            _change(draw, places, places[draw(st.integers(1, len(places) - 1))])
    return value[""]


def _places(value: Any) -> Iterator[Place]:
    names = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        yield value, name
        yield from _places(value[name])


def _change(draw: Any, places: list[Place], place: Place) -> None:
    holder, name = place
    match draw(
        st.sampled_from(["odd", "odd", "remove", "repeat", "rename", "elsewhere", "wrap", "deepen", "lengthen"])
    ):
        case "odd":
            holder[name] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        case "remove":
            del holder[name]
        case "repeat" if isinstance(holder, list):
            holder[name:name] = [copy.deepcopy(holder[name])] * draw(st.sampled_from([1, 2, 30]))
        case "rename" if isinstance(holder, dict):
            names = sorted({other for found, other in places if isinstance(found, dict)})
            holder[draw(st.sampled_from(names))] = holder.pop(name)
        case "elsewhere":
            found, other = draw(st.sampled_from(places))
            holder[name] = copy.deepcopy(found[other])
        case "wrap":
            holder[name] = draw(st.sampled_from([[holder[name]], {"text": holder[name]}, json.dumps(holder[name])]))
        case "deepen":
            holder[name] = nested(draw(st.sampled_from([1, 5, 30])), holder[name])
        case "lengthen" if isinstance(holder[name], str):
            times = draw(st.sampled_from([2, 50, 4_000]))
            holder[name] = ((holder[name] or "x ") * times)[: _MOST_BYTES // 2]


SPELLINGS: Final = (
    {},
    {},
    {"ensure_ascii": False},
    {"separators": (",", ":")},
    {"indent": 1},
    {"separators": (" ,\r\n", "\t: ")},
)


@st.composite
def spelled(draw: Any, values: st.SearchStrategy[Any]) -> bytes:
    """A value as JSON, written as one client or another would."""
    text = json.dumps(draw(values), **draw(st.sampled_from(SPELLINGS)))
    if _DEEP in text:
        depth = draw(st.sampled_from(_DEPTHS))
        text = text.replace(f'"{_DEEP}"', "[" * depth + "]" * depth)
    encoding = draw(st.sampled_from(["utf-8"] * 8 + ["utf-8-sig", "utf-16", "utf-32-le"]))
    return text.encode(encoding, "surrogatepass")


@st.composite
def damaged(draw: Any, cases: st.SearchStrategy[bytes]) -> bytes:
    """Mostly the case itself; else with some of its bytes lost, replaced, said again or said very often."""
    case = draw(cases)
    if draw(st.integers(0, 3)):
        return case
    start = draw(st.integers(0, len(case)))
    stop = min(len(case), start + draw(st.sampled_from([0, 1, 2, 8, 64])))
    piece = case[start:stop]
    match draw(st.sampled_from(["lose", "insert", "again", "often", "end"])):
        case "lose":
            return case[:start] + case[stop:]
        case "insert":
            return case[:start] + draw(st.binary(min_size=1, max_size=4)) + case[stop:]
        case "again":
            return case[:stop] + piece + case[stop:]
        case "often":
            return case[:stop] + piece * (_MOST_BYTES // 4 // max(1, len(piece))) + case[stop:]
        case _:
            return case[:start]
