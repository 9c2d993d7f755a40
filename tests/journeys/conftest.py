"""Worlds for journeys, closed however a test ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.journey import Answer, World, world

Build = Callable[..., World]


@pytest.fixture
def build(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Build]:
    """`build(window_tokens, setting={…})`: a world with one proxy; `proxies`: several, with settings of their own."""
    is_broken = request.node.get_closest_marker("breaks_the_proxy") is not None
    with contextlib.ExitStack() as stack:

        def built(
            window_tokens: int = 128_000,
            *,
            answer: Answer | None = None,
            proxies: list[Mapping[str, Any]] | None = None,
            **stated: Any,
        ) -> World:
            stated.setdefault("defaults", {"context_window": window_tokens})
            every = [{**stated, **more} for more in proxies or [{}]]
            found = world(tmp_path / "kept", window_tokens, answer, every, is_broken=is_broken)
            return stack.enter_context(found)

        yield built
