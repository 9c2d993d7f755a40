"""The made-up agents edit what they have read, and the figures fall with the window."""

from itertools import islice

from tools.bench import recall
from tools.bench.fidelity import History
from tools.bench.recall import measure, turns


def test_a_seed_gives_the_same_run_again_and_another_gives_another():
    first, again, other = ([turn.messages[-1].raw for turn in islice(turns(seed), 6)] for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_every_block_that_is_edited_stood_in_a_result_or_in_an_edit_before():
    history, seen, blocks = History(), 0, 0
    for turn in turns(1):
        history.add(turn.chat[seen:])
        seen = len(turn.chat)
        found = history.needs(turn.step).blocks
        is_edit = "old_string" in str(turn.step)
        assert bool(found) == is_edit
        blocks += len(found)
    assert blocks > 20


def test_a_smaller_window_keeps_less_and_an_endless_one_all(monkeypatch):
    monkeypatch.setattr(recall, "CONVERSATIONS", 1)
    small, large, endless = (measure(window, 1) for window in (8_000, 32_000, 10_000_000))
    assert small["edits"] < large["edits"]
    assert small["real"] < large["real"] <= 100
    assert endless["over"] == 0
    assert endless["prefix"] > large["prefix"] > small["prefix"]
