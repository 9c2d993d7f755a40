"""Settings, features and what an upstream refuses, drawn together for growing conversations: what holds for each
mechanism alone holds for any of them at once."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from support.journey import World
from support.strict_upstream import LIMIT_TOKENS, PATHS, REASONS, SYSTEM, Session, StrictUpstream

DRAWS = 200
TURNS = 3
SETTINGS: list[dict[str, Any]] = [
    {},
    {"models": [{"match": "*", "context_window": LIMIT_TOKENS}]},
    {"models": [{"match": "*", "context_window": 4 * LIMIT_TOKENS}]},
    {"budget": {"clamp_reply": False}, "language": "zh"},
    {"artifacts": {"retrieval_tool": "never"}},
]
ARTIFACT = re.compile(rb"\btool_[a-z]+_[0-9a-f]{16}\.[a-z]+")


def drawn(seed: int, number: int) -> Session:
    """A conversation that an upstream refuses for up to three reasons, in any order."""
    draw = random.Random(seed)
    reasons = draw.sample(REASONS, draw.choice((0, 1, 2, 2, 3)))
    return Session(
        draw.choice(list(PATHS)),
        reasons,
        has_tools=draw.random() < 0.8,
        lines=draw.choice((5, 40, 120)),
        reply_tokens=draw.choice((None, 300, 2_000)),
        name=f"draw {number}",
    )


def check(world: World, upstream: StrictUpstream, session: Session) -> None:
    """Raises AssertionError if a turn breaks a rule."""
    lost = 0
    for _ in range(TURNS):
        body, before = session.body(), len(upstream.sent)
        answer = world.ask(body, path=PATHS[session.api], key=f"sk-{session.name}")
        sent = upstream.sent[before:]
        assert len(sent) <= 3
        if answer.status_code == 200:
            said = json.loads(sent[-1])
            texts = json.dumps(said["messages"]) + json.dumps(said.get("system", ""))
            assert f"The task of {session.name}: find why the build fails." in texts
            assert session.words in texts
            assert SYSTEM in texts
            named = {name.decode() for name in ARTIFACT.findall(sent[-1])}
            assert named <= world.kept.keys()
            assert "x-context-proxy-edits" in answer.headers or sent[-1] == body
            assert json.loads(answer.content)
        else:
            assert answer.status_code == 400, answer.text
            # Three sends cure two reasons, and half of what was refused may still be too long.
            assert len(session.reasons) == 3 or "unnumbered" in session.reasons, answer.text
            assert answer.json()["error"]["message"]
            lost += 1
        session.answered()
    assert lost <= 1


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_drawn_conversations_break_no_rule(build: Any, number: int) -> None:
    upstream = StrictUpstream()
    world = build(answer=upstream, defaults={}, **SETTINGS[number])
    broken = []
    for seed in range(number, DRAWS, len(SETTINGS)):
        session = drawn(seed, seed)
        try:
            check(world, upstream, session)
        except AssertionError as error:
            broken.append((seed, session.api, session.reasons, str(error)[:300]))
    assert not broken
