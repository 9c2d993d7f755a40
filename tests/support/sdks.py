"""Clients that others wrote, imported when a test uses one: a process that runs no such test holds 13 MB less."""

from __future__ import annotations

from typing import Any

import pytest


def openai_python() -> Any:
    return pytest.importorskip("openai", reason="openai-python is not installed: pip install openai")
