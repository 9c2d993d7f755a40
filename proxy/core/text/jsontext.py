"""JSON as text: one level is opened at a time, so that all else keeps its bytes.

Rule: everything that a lenient upstream would read is read here. msgspec reads nearly all of it; the rest (lone
surrogates, NaN, numbers out of range) goes to the standard library, which agents written in Python use to write it.
Either way the pieces are slices of the received bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

Raw: TypeAlias = msgspec.Raw | bytes
"""The bytes of one JSON value, as they were received."""
Path: TypeAlias = tuple[str | int, ...]
"""A place in a JSON value: names of members and indexes of items. Empty: the value itself."""

_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])
_value: Final = msgspec.json.Decoder()
_any: Final = msgspec.json.Decoder(msgspec.Raw)
_encoder: Final = msgspec.json.Encoder()

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Raised by msgspec for text that it does not accept."""

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_SEPARATOR: Final = re.compile(r"[ \t\n\r]*[,:]?[ \t\n\r]*")


class NotJson(ValueError):
    """These bytes are not the expected JSON. The message says what is wrong and never quotes the content."""


def members(raw: Raw) -> Mapping[str, Raw]:
    """The members of a JSON object, in order, unopened. Raises NotJson.

    >>> {name: bytes(value) for name, value in members(b'{"a": [1, 2], "b":"x"}').items()}
    {'a': b'[1, 2]', 'b': b'"x"'}
    """
    try:
        return _object.decode(raw)
    except UNREADABLE as error:
        text, found = _leniently(raw, error)
    if not isinstance(found, dict):
        raise NotJson(f"expected a JSON object, found {_kind(found)}")
    pieces = _pieces(text)
    return {json.loads(name): _encoded(piece) for name, piece in zip(pieces, pieces, strict=True)}


def items(raw: Raw) -> Sequence[Raw]:
    """The items of a JSON array, unopened. Raises NotJson.

    >>> [bytes(item) for item in items(b'[1, "x"]')]
    [b'1', b'"x"']
    """
    try:
        return _array.decode(raw)
    except UNREADABLE as error:
        text, found = _leniently(raw, error)
    if not isinstance(found, list):
        raise NotJson(f"expected a JSON array, found {_kind(found)}")
    return [_encoded(piece) for piece in _pieces(text)]


def value(raw: Raw) -> Any:
    """The whole value, opened. Raises NotJson."""
    try:
        return _value.decode(raw)
    except UNREADABLE as error:
        return _leniently(raw, error)[1]


def check(raw: Raw) -> None:
    """Raise NotJson unless this is JSON; nothing is made of it."""
    try:
        _any.decode(raw)
    except UNREADABLE as error:
        _leniently(raw, error)


def opened(raw: Raw | None) -> Any:
    """The whole value, opened; None if there is none or it is not JSON."""
    if raw is None:
        return None
    try:
        return value(raw)
    except NotJson:
        return None


def members_if_any(raw: Raw | None) -> Mapping[str, Raw]:
    """The members of a JSON object, unopened; none of anything else."""
    try:
        return {} if raw is None else members(raw)
    except NotJson:
        return {}


def items_if_any(raw: Raw | None) -> Sequence[Raw]:
    """The items of a JSON array, unopened; none of anything else."""
    try:
        return () if raw is None else items(raw)
    except NotJson:
        return ()


def found_at(raw: Raw, path: Path) -> Raw | None:
    """The value at a place, unopened; None if there is none.

    >>> bytes(found_at(b'{"a": [1, {"b": 2}]}', ("a", 1, "b"))), found_at(b'{"a": 1}', ("a", 0))
    (b'2', None)
    """
    found: Raw | None = raw
    for step in path:
        if isinstance(step, int):
            listed = items_if_any(found)
            found = listed[step] if step < len(listed) else None
        else:
            found = members_if_any(found).get(step)
    return found


def object_in(members: Any, name: str) -> Mapping[str, Any]:
    """The object that an opened object has under a name; empty for anything else."""
    found = members.get(name) if isinstance(members, dict) else None
    return found if isinstance(found, dict) else {}


def opened_object(raw: Raw | None) -> Mapping[str, Any]:
    """A JSON object, opened; empty for anything else."""
    found = opened(raw)
    return found if isinstance(found, dict) else {}


def listed(found: Any) -> list[Any]:
    """An opened array; empty for anything else."""
    return found if isinstance(found, list) else []


def string_in(members: Any, name: str) -> str:
    """The string that an opened object has under a name; empty for anything else, which may not even be hashable.

    >>> string_in({"type": "text"}, "type"), string_in({"type": ["text"]}, "type"), string_in(None, "type")
    ('text', '', '')
    """
    found = members.get(name) if isinstance(members, Mapping) else None
    return found if isinstance(found, str) else ""


def dump(found: Any) -> bytes:
    """A value as JSON; lone surrogates become escapes, because they have no UTF-8; everything else is kept.

    >>> dump({"text": "é\\ud800", "kept": msgspec.Raw(b"1.0")}).decode()
    '{"text":"é\\\\ud800","kept":1.0}'
    """
    try:
        return _encoder.encode(found)
    except UnicodeEncodeError:
        return _with_surrogates(found)


def _with_surrogates(found: Any) -> bytes:
    if isinstance(found, Mapping):
        members = {}
        for name in found:  # a comprehension would halve the depth at which Python gives up
            members[name] = _with_surrogates(found[name])
        return join_object(members)
    if isinstance(found, list | tuple):
        return join_array(list(map(_with_surrogates, found)))
    if isinstance(found, str):
        # Here, the handler's `\\udXXX` is also JSON's escape.
        return json.dumps(found, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return _encoder.encode(found)


def dump_object(text: str) -> bytes:
    """The object whose JSON a text is, without any change; another text becomes its only member.

    >>> dump_object('{"a":  1}').decode(), dump_object("[1]").decode()
    ('{"a":  1}', '{"text":"[1]"}')
    """
    raw = text.encode("utf-8", "surrogatepass")
    return raw if isinstance(opened(raw), dict) else dump({"text": text})


def join_object(parts: Mapping[str, Raw]) -> bytes:
    """An object from members that keep their bytes.

    >>> join_object({"a": b"1", "b": b"[ 2 ]"})
    b'{"a":1,"b":[ 2 ]}'
    """
    if not parts:
        return b"{}"
    pieces: list[Raw] = []
    for name, part in parts.items():
        pieces += (b",", dump(name), b":", part)
    pieces[0] = b"{"
    pieces.append(b"}")
    return b"".join(pieces)  # at once: each step on the way would copy a list of messages of megabytes again


def join_array(parts: Sequence[Raw]) -> bytes:
    """An array from items that keep their bytes."""
    if len(parts) < 2:
        return b"[%b]" % b"".join(parts)
    first, *between, last = parts
    return b",".join([b"[%b" % first, *between, b"%b]" % last])  # at once, like an object


def embedded(raw: bytes) -> bytes:
    """A message of any API as a part of JSON: unchanged if it is JSON, or several values separated by commas; otherwise
    a string. `taken_out` returns the same bytes.

    >>> embedded(b'{"a": 1}'), embedded(b"user: a"), taken_out(embedded(b"user: a"))
    (b'{"a": 1}', b'"user: a"', b'user: a')
    """
    try:
        if items(b"[%b]" % raw) and not raw.startswith(b'"'):
            return raw
    except NotJson:
        pass
    return dump(raw.decode("utf-8", "surrogateescape"))


def taken_out(raw: Raw) -> bytes:
    """The bytes that were embedded."""
    written = bytes(raw)
    return value(written).encode("utf-8", "surrogateescape") if written.startswith(b'"') else written


def _leniently(raw: Raw, error: Exception) -> tuple[str, Any]:
    """The JSON as a text, and its value. Invalid UTF-8 becomes lone surrogates; `_encoded` turns them back."""
    whole = bytes(raw)
    encoding = json.detect_encoding(whole)
    try:
        text = whole.decode(encoding, "surrogateescape" if encoding.startswith("utf-8") else "surrogatepass")
        return text, _stdlib.decode(text)
    except RecursionError:
        raise NotJson("the JSON is nested too deeply") from None
    except ValueError as strict:  # JSONDecodeError and UnicodeDecodeError
        detail = str(error) if isinstance(error, msgspec.DecodeError) else str(strict)
        raise NotJson(detail.split(": line")[0]) from None


def _whole_number(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts: sys.int_info.default_max_str_digits
        return float(digits)


_stdlib: Final = json.JSONDecoder(parse_int=_whole_number)


def _pieces(text: str) -> Iterator[str]:
    """The values of a JSON array, or alternately the names and values of an object, as they are written."""
    at = _end(_BLANK, text, _end(_BLANK, text, 0) + 1)
    while text[at] not in "]}":
        _, end = _stdlib.raw_decode(text, at)
        yield text[at:end]
        at = _end(_SEPARATOR, text, end)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # it was received as UTF-16 and has a surrogate of its own
        return text.encode("utf-8", "surrogatepass")


def _kind(found: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(found), "a number")


def spliced(raw: Raw, changes: Mapping[Path, bytes | None]) -> bytes:
    """A JSON value with parts replaced or removed; everything else keeps its bytes. Raises NotJson.

    >>> spliced(b'{"a": {"b":1, "c": 2.0}}', {("a", "b"): b"7"})
    b'{"a":{"b":7,"c":2.0}}'
    """
    if not changes:
        return bytes(raw)
    whole = changes.get(())
    if whole is not None:
        return whole
    below: dict[str | int, dict[Path, bytes | None]] = {}
    for path, replacement in changes.items():
        below.setdefault(path[0], {})[path[1:]] = replacement
    if any(isinstance(step, int) for step in below):
        found = enumerate(items(raw))
        return join_array([bytes(part) for _, part in _changed(found, below)])
    parts = dict(members(raw))
    added = {name: inner[()] for name, inner in below.items() if name not in parts and inner.get(()) is not None}
    kept = {str(name): part for name, part in _changed(parts.items(), below)}
    return join_object(kept | {str(name): part for name, part in added.items() if part is not None})


def _changed(
    parts: Iterable[tuple[str | int, Raw]], below: Mapping[str | int, Mapping[Path, bytes | None]]
) -> Iterable[tuple[str | int, Raw]]:
    for step, part in parts:
        inner = below.get(step)
        if inner is None:
            yield step, part
        elif inner.get((), b"") is not None:
            yield step, spliced(part, inner)
