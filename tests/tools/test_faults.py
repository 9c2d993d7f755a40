"""The short form of `make faults`: nothing of what may go wrong loses anything."""

import asyncio
from collections import Counter
from unittest.mock import AsyncMock

import pytest

from tools.faults.__main__ import TRIALS, main
from tools.faults.report import page
from tools.faults.soak import Sample, Soaked
from tools.faults.trials import Extent, Tried

TOGETHER = tuple(
    name
    for name in ("slow_bodies", "many_at_once", "kills", "much_kept", "two_versions", "two_versions_at_once")
    if name in TRIALS
)
"""These mostly wait, each for a proxy of its own."""


@pytest.mark.parametrize(
    "names", [TOGETHER, *((name,) for name in TRIALS if name not in TOGETHER)], ids=lambda names: " and ".join(names)
)
async def test_nothing_is_lost(names):
    for found in await asyncio.gather(*(TRIALS[name](Extent.short()) for name in names)):
        assert found
        assert [(line.promise, line.lost) for line in found] == [(line.promise, []) for line in found]
        assert all(line.times for line in found)


def test_a_loss_is_reported_on_the_page_and_fails_the_command(monkeypatch, tmp_path, capsys):
    tried = [Tried("Nothing breaks", "a hammer", 2, ["the window"]), Tried("Nothing burns", "a match", 1)]
    monkeypatch.setitem(TRIALS, "kills", AsyncMock(return_value=tried))
    monkeypatch.setattr("sys.argv", ["faults", "--only", "kills", "--write", str(tmp_path / "page.md")])
    assert main() == 1
    written = (tmp_path / "page.md").read_text()
    assert "| Nothing breaks | a hammer | 2 | 1 |" in written
    assert "* Nothing breaks: the window" in written
    assert "lost: the window" in capsys.readouterr().out


def test_what_was_not_tried_fails_the_command(monkeypatch):
    monkeypatch.setitem(TRIALS, "kills", AsyncMock(return_value=[Tried("Nothing breaks", "nothing")]))
    monkeypatch.setattr("sys.argv", ["faults", "--only", "kills"])
    assert main() == 1
    assert "times" not in page([])[-10:]


def soaked(*memory, sockets=10):
    """A soak with one sample for each memory reading; each sample has one more open socket."""
    samples = [Sample(5.0 * n, held, 30, 14, sockets + n) for n, held in enumerate(memory)]
    return Soaked(20, samples, Counter(small=3), Counter())


def test_a_soak_that_ends_above_its_beginning_is_a_loss():
    ended, answered = soaked(100, 200, 104).tried()
    assert (ended.times, ended.lost, answered.times, answered.lost) == (4, [], 3, [])
    assert soaked(100, 100, 106).tried()[0].lost == ["memory: 100.0 → 106.0"]
    assert soaked(100, 100, 100, 100, 100).tried()[0].lost == ["sockets: 10.0 → 14.0"]


def test_a_soak_is_on_the_page_with_its_figures_and_its_graph():
    written = page([], soaked(100, 200, 104).section("reliability-memory.svg"))
    assert "| memory | 100 MB | 104 MB | 200 MB | +4.0% |" in written
    assert "(reliability-memory.svg)" in written
