"""A model switched in mid-session refuses a history for two reasons, one at a time: both are cured in one turn, and
known in the next."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from support.journey import World
from support.spellings import SPELLINGS
from support.upstream import ScriptedModel
from support.upstream.strict import LIMIT_TOKENS, REASONS, Session, strict

LENGTHS = frozenset({"length", "unnumbered"})
PAIRS = [pair for pair in itertools.permutations(REASONS, 2) if set(pair) != LENGTHS]


def sends(world: World, upstream: ScriptedModel, session: Session, turns: int) -> list[tuple[int, int]]:
    """(status of the last response, requests that reached the upstream), for each turn."""
    found = []
    for _ in range(turns):
        before = len(upstream.sent)
        answer = world.ask(session.body(), path=session.path, key=f"sk-{session.name}")
        found.append((answer.status_code, len(upstream.sent) - before))
        session.answered()
    return found


@pytest.mark.parametrize("api", SPELLINGS)
@pytest.mark.parametrize("configured", [None, 5 * LIMIT_TOKENS])
def test_no_turn_is_lost_for_two_reasons_in_any_order(build: Any, api: str, configured: int | None) -> None:
    upstream = strict()
    models = [] if configured is None else [{"match": "*", "context_window": configured}]
    world = build(behind=upstream, models=models, defaults={})
    for pair in PAIRS:
        found = sends(world, upstream, Session(api, pair, name="-".join(pair)), turns=3)
        assert [status for status, _ in found] == [200, 200, 200], pair
        assert max(count for _, count in found) <= 3, pair
        if configured is None:
            assert [count for _, count in found[1:]] == [1, 1], pair


def test_a_window_that_an_exact_refusal_corrects_is_adopted_and_logged(build: Any) -> None:
    upstream = strict()
    world = build(behind=upstream, models=[{"match": "*", "context_window": 2 * LIMIT_TOKENS - 2}], defaults={})
    found = sends(world, upstream, Session("chat", ["length"]), turns=3)
    assert found == [(200, 2), (200, 1), (200, 1)]
    (line,) = world.log("configured_window_corrected")
    assert (line["window_tokens"], line["configured_tokens"]) == (LIMIT_TOKENS, 2 * LIMIT_TOKENS - 2)
    source = f"learned from a refusal, in place of {2 * LIMIT_TOKENS - 2} from config models[0]"
    assert world.logged("model_limits", 2)[-1]["window_from"] == source


def test_a_window_under_what_a_refusal_prints_stays_as_it_is_configured(build: Any) -> None:
    upstream = strict()
    world = build(behind=upstream, models=[{"match": "*", "context_window": 2 * LIMIT_TOKENS - 2}], defaults={})
    sends(world, upstream, Session("chat", ["length"]), turns=1)
    smaller = build(
        behind=upstream,
        models=[{"match": "*", "context_window": LIMIT_TOKENS // 2}],
        defaults={},
        data_dir=world.folder,
    )
    assert sends(smaller, upstream, Session("chat", ["length"]), turns=1) == [(200, 1)]
    assert not smaller.log("configured_window_corrected")


@pytest.mark.parametrize("api", SPELLINGS)
def test_half_of_what_was_refused_holds_the_task_and_the_newest_words(build: Any, api: str) -> None:
    upstream = strict()
    session = Session(api, ["unnumbered"])
    session.messages[0]["content"] += " It matters." * 600
    session.messages[0]["content"] += " The task ends here."
    world = build(behind=upstream, defaults={})
    assert sends(world, upstream, session, turns=1)[0][0] == 200
    messages = json.dumps(upstream.last.messages)
    assert "The task ends here." in messages
    assert session.words in messages


def test_the_error_says_what_was_done(build: Any) -> None:
    upstream = strict()
    session = Session("chat", ["image", "pairing", "unnumbered"])
    answer = build(behind=upstream, defaults={}).ask(session.body())
    assert (answer.status_code, len(upstream.sent)) == (400, 3)
    message = answer.json()["error"]["message"]
    assert "its media had been replaced by text and its calls and results had been made to pair up;" in message
    assert "once more" not in message
