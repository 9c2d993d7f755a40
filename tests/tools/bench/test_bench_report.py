"""The tables say what the samples say, and leave nothing out that failed."""

from tools.bench.apis import CHAT, MESSAGES, RESPONSES
from tools.bench.bodies import WORKLOADS
from tools.bench.contenders import NGINX, OFF, OURS, PEER_NAMES
from tools.bench.figures import CPU_FIGURES, FIGURES, MOST_OVER_OFF, of_api
from tools.bench.report import apis_table, contenders_table, off_table, page, targets_table
from tools.bench.results import Results


def _cells(table, title):
    (line,) = [line for line in table.splitlines() if title in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def _results(ours, nginx):
    results = Results()
    for sample in ours:
        results.add("chat_2kb", OURS, sample)
    for sample in nginx:
        results.add("chat_2kb", NGINX, sample)
    return results


def test_a_ratio_is_median_over_median_and_is_held_to_its_target():
    met = targets_table(_results((0.3, 0.4, 0.9), (0.04, 0.05, 0.06)))
    missed = targets_table(_results((0.401,), (0.05,)))
    title = "2 KB question, CPU"
    assert _cells(met, title) == [title, "0.400 ms (0.300 to 0.900)", "0.050 ms", "8.0×", "≤ 8×", "yes"]
    assert _cells(missed, title)[-1] == "**no**"


def test_a_target_in_its_own_unit_needs_no_nginx():
    results = Results()
    results.add("idle", OURS, 86.0)
    assert _cells(targets_table(results), "idle memory") == ["idle memory", "86 MB", "–", "–", "≤ 85 MB", "**no**"]


def test_the_server_that_only_forwards_is_held_to_a_target_of_its_own():
    results = _results((0.3,), (0.1,))
    results.add("chat_2kb", OFF, 0.47)
    cells = _cells(targets_table(results), "2 KB question, CPU, switched off")
    assert cells[1:] == ["0.470 ms", "0.100 ms", "4.7×", "≤ 4.6×", "**no**"]


def test_the_load_that_was_reached_is_reported_with_the_figure():
    results = Results()
    for name, figure, reached in ((OURS, 25.0, 24_400.0), (NGINX, 12.5, 24_900.0)):
        results.add("streams", name, figure)
        results.add("streams_a_second", name, reached)
    results.add("streams_a_read", OURS, 1.2)
    cells = _cells(targets_table(results), "500 streams")
    reported = ["25.0 µs at 24400 a second, 1.2 a read", "12.5 µs at 24900 a second"]
    assert cells[1:] == [*reported, "2.0×", "≤ 24 µs", "**no**"]


def test_this_project_is_held_to_what_forwarding_costs_in_the_same_round():
    results = _results((0.4, 0.8, 0.9), ())
    for sample in (0.4, 0.4, 0.6):
        results.add("chat_2kb", OFF, sample)
    cells = _cells(off_table(results), "2 KB question")
    assert cells[1:] == ["0.800 ms (0.400 to 0.900)", "0.400 ms (0.400 to 0.600)", "0.300 ms", "≤ 0.25 ms", "**no**"]
    assert off_table(_results((0.4,), ())) == "(context-proxy or context-proxy-off did not take part.)"


def test_a_run_without_this_project_says_so_and_without_nginx_no_ratio_is_met_or_missed():
    assert targets_table(_results((), (0.05,))) == "(context-proxy did not take part.)"
    assert _cells(targets_table(_results((0.4,), ())), "2 KB")[-1] == "? (no nginx)"


def test_a_figure_over_the_window_is_compared_with_nginx_forwarding_all_of_it():
    results = Results()
    results.add("cut_2mb", OURS, 6.0)
    results.add("growing_2mb", NGINX, 1.5)
    assert _cells(contenders_table(results, [OURS]), "into a window")[1] == "6.00 (4.0×)"


def test_a_failed_figure_is_named_with_its_reason():
    results = _results((0.4,), (0.05,))
    results.failures["chunk", "Peer"] = "stream: status 500:\n`no`"
    text, details = page(
        results, [], [NGINX, OURS, "Peer"], when="2024-01-01", command="python -m tools.bench", rounds=3
    )
    assert _cells(text, "| streamed event, CPU")[-1] == _cells(details, "| streamed event, CPU")[-1] == "failed"
    assert "* Peer, streamed event, CPU: `stream: status 500: 'no'`" in text
    assert "on 2024-01-01" in text
    assert "* Not in this run: LiteLLM, Portkey, headroom; " in text


def test_a_page_with_all_proxies_names_none_that_is_missing():
    names = [NGINX, OURS, *PEER_NAMES]
    text, _ = page(_results((0.4,), (0.05,)), [], names, when="2024-01-01", command="", rounds=3)
    assert "Not in this run" not in text


def test_an_api_is_held_to_what_chat_costs_in_the_same_round():
    results = _results((0.4, 0.8), ())
    for api, samples in ((MESSAGES, (0.4, 0.8)), (RESPONSES, (0.48, 0.96))):
        for sample in samples:
            results.add(of_api("chat_2kb", api), OURS, sample)
    cells = _cells(apis_table(results), "2 KB question")
    assert cells[1:] == ["0.600 ms", "0.600 ms (1.00×)", "0.720 ms (1.20×)", "≤ 1.15×", "**no**"]
    assert apis_table(_results((0.4,), ())) == "(context-proxy did not take part.)"


def test_every_way_of_measuring_fills_a_row_and_every_floor_is_one():
    chats = {figure.row for figure in CPU_FIGURES if WORKLOADS[figure.workload].api is CHAT}
    others = {figure.row for figure in CPU_FIGURES} - chats
    assert chats <= FIGURES.keys()
    assert {row.rpartition("_")[0] for row in others} <= chats
    assert MOST_OVER_OFF.keys() <= chats
    assert {row for figure in FIGURES.values() for row in (figure.floor, *figure.at) if row} <= FIGURES.keys()
