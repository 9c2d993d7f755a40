"""Messages that no local step changes, known to all workers: each sees only a part of a conversation's turns, and would
otherwise read every message by itself.

Rule: what is known depends on nothing but the message, the steps, the counter and how the client gets at artifacts; of
a message, only its hash and its size are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Final

from msgspec import Struct

from proxy.core.conversation.message import Message
from proxy.core.conversation.size import Size
from proxy.shell.resources.shared_table import KEY_BYTES, SharedTable

_LEAST_BYTES: Final = 256
"""A shorter message is read as fast as it is looked up."""


class KnownPlainMessages:
    """Those of one kind of request."""

    def __init__(self, table: SharedTable, *terms: object) -> None:
        """`terms`: everything besides a message on which the steps and the size depend."""
        self._table = table
        self._terms = hashlib.blake2b(_spelled(terms).encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES)

    def size_of(self, message: Message, tool: str) -> Size | None:
        """The size of such a message; None if it is not known to be one."""
        if len(message.raw) < _LEAST_BYTES:
            return None
        found = self._table.get(self._key(message, tool))
        return None if found is None else Size(*found)

    def note(self, message: Message, tool: str, size: Size) -> None:
        """Remember one, of this size."""
        if len(message.raw) >= _LEAST_BYTES:
            self._table.put(self._key(message, tool), size.tokens, size.chars, size.bytes)

    def _key(self, message: Message, tool: str) -> bytes:
        found = self._terms.copy()
        about = f"{type(message).__module__}\0{message.role}\0{tool}\0"
        found.update(about.encode("utf-8", "surrogatepass"))
        found.update(message.raw)
        return found.digest()


def _spelled(value: object) -> str:
    """The same text in every process: sets are sorted.

    >>> _spelled({"b": frozenset({2, 1}), "a": (None, "x")})
    "{'a':(None,'x',),'b':{1,2,},}"
    """
    if (names := _fields(value)) is not None:
        inside = "".join(f"{name}={_spelled(getattr(value, name))}," for name in names)
        return f"{type(value).__qualname__}({inside})"
    if isinstance(value, Mapping):
        return "{" + "".join(sorted(f"{_spelled(key)}:{_spelled(inside)}," for key, inside in value.items())) + "}"
    if isinstance(value, Set):
        return "{" + "".join(sorted(f"{_spelled(one)}," for one in value)) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "(" + "".join(f"{_spelled(one)}," for one in value) + ")"
    return repr(value)


def _fields(value: object) -> Sequence[str] | None:
    """Of a record; None for anything else."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    return [field.name for field in fields(value)] if is_dataclass(value) and not isinstance(value, type) else None
