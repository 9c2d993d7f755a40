"""Records whose content is never shown."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Discreet(Struct, frozen=True):
    """A record that holds content. What Python shows of it, in a log or a traceback, is only numbers and members of
    enumerations: no text, no bytes, nothing that may hold some."""

    def __repr__(self) -> str:
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = (f"{name}={value!r}" for name, value in fields if isinstance(value, int | float | Enum | None))
        return f"{type(self).__name__}({', '.join(shown)})"
