"""Texts: excerpts, lines, identifiers, JSON that keeps its bytes; and the types that every room names."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Raw as _Raw
from msgspec import Struct

Raw: TypeAlias = _Raw | bytes
"""The bytes of one JSON value, as they were received."""
Path: TypeAlias = tuple[str | int, ...]
"""A place in a JSON value: names of members and indexes of items. Empty: the value itself."""


class Discreet(Struct, frozen=True):
    """A record that holds content. What Python shows of it, in a log or a traceback, is only numbers and members of
    enumerations: no text, no bytes, nothing that may hold some."""

    def __repr__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = (f"{name}={value!r}" for name, value in fields if isinstance(value, int | float | Enum | None))
        return f"{type(self).__name__}({', '.join(shown)})"
