from __future__ import annotations

import io

import pytest
from rich.console import Console

from proxy.demo.agent import Turn
from proxy.demo.contest import Brief, Contest, Run, progress, show, verdict
from proxy.demo.refusals import OPENAI

URL = "http://127.0.0.1:8788/v1"
DIED = Turn(
    2, (), 17_000, 0, refusal="400 context_length_exceeded: This model's maximum context length is 16000 tokens."
)
READ = Turn(1, ("list_files", "read_file logs/a-service-with-a-very-long-name-indeed.log"), 9_000, 9_000)
CUT = Turn(2, ("read_file logs/cart.log",), 17_000, 12_000, edits="truncate_tool_output=3;drop_exchanges=1", attempts=2)
DONE = Turn(3, (), 1_017_500, 12_500, answer="After 1 services: right")


def held(direct: tuple[Turn, ...], proxied: tuple[Turn, ...]) -> Contest:
    return Contest(Brief(16_000, 3, 1, OPENAI, 0), Run(direct, "right"), Run(proxied, "right"), URL)


def drawn(contest: Contest, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(console, contest)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_shows_both_runs_turn_by_turn_in_80_columns() -> None:
    shown = drawn(held((READ, DIED), (READ, CUT, DONE)), 80)
    assert max(map(len, shown.splitlines())) <= 80
    rows = [line.split() for line in shown.splitlines()]
    assert ["2", "refused:", "400", "read_file", "cart.log", "17", "000", "12", "000"] in rows
    assert ["3", "answer", "1", "017", "500", "12", "500"] in rows  # nothing stands in the direct column
    assert "truncate_tool_output" not in shown


def test_a_wide_table_tells_what_the_proxy_did() -> None:
    shown = drawn(held((READ, DIED), (READ, CUT, DONE)), 120)
    assert max(map(len, shown.splitlines())) <= 120
    assert "Agent sent   Model saw   What the proxy did" in shown
    assert "truncate_tool_output=3," in shown
    assert "asked twice" in shown


@pytest.mark.parametrize(
    ("proxied", "said"),
    [
        (
            (READ, CUT, DONE),
            "found the answer in 3 turns, with a conversation 63.6 times the window (1 017 500 of 16 000 tokens).",
        ),
        ((READ, DIED), "died at turn 2 of 3."),
        ((READ, CUT, CUT, DIED), "died at turn 4."),
        (
            (READ, Turn(2, (), 9_500, 9_500, answer="After 1 services: wrong")),
            "ended after 2 turns without the right answer.",
        ),
        ((READ, Turn(2, ("ls",), 9_500, 9_500)), "was still searching after 2 turns."),
    ],
)
def test_the_verdict_is_true(proxied: tuple[Turn, ...], said: str) -> None:
    assert (
        verdict(held((READ, DIED), proxied)) == f"Directly the agent died at turn 2 of 3; through the proxy it {said}"
    )


def test_on_a_terminal_bars_stand_for_the_lines() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with progress(console, 3) as report:
        report("direct", READ)
        report("proxy", DIED)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "turn 1 read_file a-service" in shown
    assert "turn 2 refused" in shown


def test_each_turn_is_told_once_off_a_terminal_and_on_one() -> None:
    contest = held((READ, DIED), (READ, CUT, DONE))
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), width=80, force_terminal=is_terminal, color_system=None)
        if not is_terminal:
            with progress(console, 3) as report:
                for turn in (READ, CUT, DONE):
                    report("proxy", turn)
        show(console, contest)
        assert isinstance(console.file, io.StringIO)
        assert console.file.getvalue().count("12 000") == 1
