"""The stage of a module's journeys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.overflow_stage import Stage, staged


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """A stage with the `SETTINGS` of the module, if it has any."""
    async with staged(tmp_path, **getattr(request.module, "SETTINGS", {})) as found:
        yield found
