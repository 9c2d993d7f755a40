"""An agent that does what the notices say gets back what was left out, and the figures say what that takes."""

import gzip
import json
from itertools import islice

from tools.bench.recall import pipeline_for, turns
from tools.bench.way_back import MAX_CALLS, fetched, measure, recorded

RESULT = "\n".join([*(f"first_line_{n} = {n}" for n in range(200)), "wanted_line = 1", "second_wanted_line = 2"])
NAME, OLDER = "tool_messages_0123456789abcdef.json", "tool_messages_0123456789abcde0.json"
SEEN = f"see wanted_line, kept as JSON in /kept/{NAME}."
BLOCK = frozenset({"wanted_line = 1", "second_wanted_line = 2"})


def _kept(earlier, *texts):
    messages = ",\n".join(json.dumps({"role": "tool", "tool_call_id": "c", "content": text}) for text in texts)
    return f'{{"earlier":{json.dumps(earlier)},"messages":[\n{messages}\n]}}'.encode()


def test_a_lost_block_is_found_in_the_kept_messages_with_a_search_and_a_page():
    fetch = fetched(BLOCK, frozenset(), [SEEN], {NAME: _kept([], "no", RESULT)})
    assert (fetch.missing, fetch.calls) == (set(), 2)
    assert 0 < fetch.tokens < 1_000


def test_what_an_earlier_cut_left_out_takes_no_search_more():
    store = {NAME: _kept([OLDER], "nothing here"), OLDER: _kept([], RESULT)}
    fetch = fetched(BLOCK, frozenset(), [SEEN], store)
    assert (fetch.missing, fetch.calls) == (set(), 2)


def test_a_result_that_was_cut_is_searched_itself():
    name = "tool_read_0123456789abcdef.txt"
    fetch = fetched(
        BLOCK, frozenset({"wanted_line = 1"}), [f"see wanted_line, kept in /kept/{name}."], {name: RESULT.encode()}
    )
    assert (fetch.missing, fetch.calls) == (set(), 1)


def test_a_block_in_the_arguments_of_a_call_is_read_as_its_lines():
    arguments = json.dumps({"path": "a.py", "content": RESULT})
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "write", "arguments": arguments}}]}
    kept = f'{{"earlier":[],"messages":[\n{json.dumps(message)}\n]}}'.encode()
    fetch = fetched(BLOCK, frozenset(), [SEEN], {NAME: kept})
    assert fetch.missing == set()
    assert fetch.calls <= 3


def test_no_call_is_made_again_for_another_match_in_the_same_text():
    text = f"wanted_line {'x' * 2_000} wanted_line {'x' * 2_000} wanted_line"
    fetch = fetched(frozenset({"wanted_line = 1"}), frozenset(), [SEEN], {NAME: _kept([], text)})
    assert (bool(fetch.missing), fetch.calls) == (True, 2)


def test_an_agent_searches_only_for_names_that_it_sees():
    fetch = fetched(BLOCK, frozenset(), [f"kept as JSON in /kept/{NAME}."], {NAME: _kept([], RESULT)})
    assert (fetch.missing, fetch.calls) == (BLOCK, 0)


def test_what_is_nowhere_is_not_found_and_the_calls_are_bounded():
    store = {NAME: _kept([], *[f"second_wanted_line = {n}" for n in range(10, 60)])}
    fetch = fetched(BLOCK, frozenset(), [SEEN], store)
    assert fetch.missing
    assert fetch.calls <= MAX_CALLS


def test_a_run_in_a_small_window_loses_blocks_and_most_of_them_are_found():
    figures = measure([turns(1)], pipeline_for(8_000)).shares()
    assert figures["blocks"] >= figures["lost"] > figures["found"] / 2 > 0
    assert figures["found"] > figures["lost"] / 3
    assert 1 <= figures["calls_p50"] <= figures["calls_p90"] <= MAX_CALLS


def test_recorded_conversations_are_read_from_a_file_packed_or_not(tmp_path):
    *_, last = islice(turns(1), 9)
    line = json.dumps({"messages": [*last.chat, last.step], "source": "some/project:1"})
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_text(line)
    packed.write_bytes(gzip.compress(line.encode()))
    for path in (plain, packed):
        ((project, conversation),) = recorded(path, 3)
        assert project == "some/project"
        assert [turn.step for turn in conversation][-1] == last.step
