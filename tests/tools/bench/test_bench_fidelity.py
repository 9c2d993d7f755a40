"""Retained content: names and lines in the text of the conversation itself, blocks if every line is present."""

import json

from tools.bench.fidelity import History, Tally, lines_of


def _result(text):
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


def _step(**arguments):
    call = {"id": "call_2", "type": "function", "function": {"name": "edit", "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


READ = _result("   1\tdef first_function(argument_one):\n   2\t    return other_function(argument_one)")
EDIT = _step(old_string="def first_function(argument_one):\n    return other_function(argument_one)", path="a.py")


def _history():
    history = History()
    history.add([{"role": "user", "content": "Look at argument_one, please"}, READ])
    return history


def test_a_step_needs_what_only_results_have_said():
    needs = _history().needs(EDIT)
    assert needs.names == {"first_function", "other_function", "return"}
    assert needs.lines == {"def first_function(argument_one):", "return other_function(argument_one)"}
    assert needs.blocks == (needs.lines,)


def test_lines_are_those_of_the_file_without_the_numbers_of_its_reader():
    assert "return other_function(argument_one)" in set(lines_of(READ))


def test_a_list_of_names_and_a_block_with_a_line_missing_do_not_count():
    history, tally = _history(), Tally()
    needs = history.needs(EDIT)
    tally.add(needs, *history.standing([_result("names: first_function other_function")]))
    assert tally.shares() == {"real": 0.0, "edits": 0.0, "lines": 0.0}
    tally.add(needs, *history.standing([_result("def first_function(argument_one):")]))
    assert tally.shares() == {"real": 16.7, "edits": 0.0, "lines": 25.0}
    tally.add(needs, *history.standing([READ]))
    assert tally.shares() == {"real": 44.4, "edits": 33.3, "lines": 50.0}


def test_content_that_needed_no_cut_is_all_there():
    assert Tally().shares() == {"real": 100.0, "edits": 100.0, "lines": 100.0}
