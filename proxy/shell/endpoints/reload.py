"""What reads the settings again: the type that the endpoint `POST /-/reload` and the server share.

Rule: nothing here loads FastAPI, as the application is made without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, TypeAlias


class Reloaded(NamedTuple):
    """What came of it."""

    status: Literal["reloaded", "unchanged"]
    restart_needed: list[str]
    """Settings that are written otherwise now and cannot change while the proxy runs."""


Reload: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reads the settings again. Raises SettingsRefused."""
