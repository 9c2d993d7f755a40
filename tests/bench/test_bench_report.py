"""The tables say what the samples say, and leave nothing out that failed."""

from __future__ import annotations

from bench.apis import CHAT, MESSAGES, RESPONSES
from bench.bodies import WORKLOADS
from bench.contenders import NGINX, OURS
from bench.figures import CPU_FIGURES, FIGURES, of_api
from bench.report import apis_table, contenders_table, page, targets_table
from bench.results import Results


def _cells(table: str, title: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if title in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def _results(ours: tuple[float, ...], nginx: tuple[float, ...]) -> Results:
    results = Results()
    for sample in ours:
        results.add("chat_2kb", OURS, sample)
    for sample in nginx:
        results.add("chat_2kb", NGINX, sample)
    return results


def test_a_ratio_is_median_over_median_and_is_held_to_its_target() -> None:
    met = targets_table(_results((0.3, 0.4, 0.9), (0.04, 0.05, 0.06)))
    missed = targets_table(_results((0.401,), (0.05,)))

    title = "2 KB question, CPU"
    assert _cells(met, title) == [title, "0.400 ms (0.300 to 0.900)", "0.050 ms", "8.0×", "≤ 8×", "yes"]
    assert _cells(missed, title)[-1] == "**no**"


def test_a_target_in_its_own_unit_needs_no_nginx() -> None:
    results = Results()
    results.add("idle", OURS, 91.0)

    assert _cells(targets_table(results), "idle memory") == ["idle memory", "91 MB", "–", "–", "≤ 90 MB", "**no**"]


def test_a_run_without_this_project_says_so() -> None:
    assert targets_table(_results((), (0.05,))) == "(context-proxy did not take part.)"


def test_without_nginx_a_ratio_is_neither_met_nor_missed() -> None:
    assert _cells(targets_table(_results((0.4,), ())), "2 KB")[-1] == "? (no nginx)"


def test_a_figure_over_the_window_is_compared_with_nginx_forwarding_all_of_it() -> None:
    results = Results()
    results.add("cut_2mb", OURS, 6.0)
    results.add("growing_2mb", NGINX, 1.5)

    assert _cells(contenders_table(results, [OURS]), "into a window")[1] == "6.00 (4.0×)"


def test_a_failed_figure_is_named_with_its_reason() -> None:
    results = _results((0.4,), (0.05,))
    results.failures["chunk", "Peer"] = "stream: status 500:\n`no`"

    text = page(results, [], [NGINX, OURS, "Peer"], when="2024-01-01", command="python -m bench", rounds=3)

    assert _cells(text, "| streamed event, CPU")[-1] == "failed"
    assert "* Peer, streamed event, CPU: `stream: status 500: 'no'`" in text
    assert "on 2024-01-01" in text


def test_an_api_is_held_to_what_chat_costs_in_the_same_round() -> None:
    results = _results((0.4, 0.8), ())
    for api, samples in ((MESSAGES, (0.4, 0.8)), (RESPONSES, (0.48, 0.96))):
        for sample in samples:
            results.add(of_api("chat_2kb", api), OURS, sample)

    cells = _cells(apis_table(results), "2 KB question")
    assert cells[1:] == ["0.600 ms", "0.600 ms (1.00×)", "0.720 ms (1.20×)", "≤ 1.15×", "**no**"]
    assert apis_table(_results((0.4,), ())) == "(context-proxy did not take part.)"


def test_every_way_of_measuring_fills_a_row_and_every_floor_is_one() -> None:
    chats = {figure.row for figure in CPU_FIGURES if WORKLOADS[figure.workload].api is CHAT}
    others = {figure.row for figure in CPU_FIGURES} - chats
    assert chats <= FIGURES.keys()
    assert {row.rpartition("_")[0] for row in others} <= chats
    assert {figure.floor for figure in FIGURES.values() if figure.floor} <= FIGURES.keys()
