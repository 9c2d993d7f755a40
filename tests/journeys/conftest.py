"""Worlds for journeys, closed however a test ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.journey import World, world
from support.upstream import Rule, Says, ScriptedModel, model_server

Build = Callable[..., World]


@pytest.fixture
def build(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Build]:
    """`build(window_tokens, *rules, setting={…})`: a world with one proxy before a model server with these rules before
    its own; `behind`: another one, `says`: another model, `proxies`: several, with settings of their own."""
    is_broken = request.node.get_closest_marker("breaks_the_proxy") is not None
    with contextlib.ExitStack() as stack:

        def built(
            window_tokens: int = 128_000,
            *rules: Rule,
            behind: ScriptedModel | None = None,
            says: Says | None = None,
            proxies: list[Mapping[str, Any]] | None = None,
            **stated: Any,
        ) -> World:
            model = behind or model_server(window_tokens)
            model.rules = [*rules, *model.rules]
            model.says = says or model.says
            stated.setdefault("defaults", {"context_window": window_tokens})
            every = [{**stated, **more} for more in proxies or [{}]]
            return stack.enter_context(world(tmp_path / "kept", model, every, is_broken=is_broken))

        yield built
