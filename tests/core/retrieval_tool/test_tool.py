from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.retrieval_tool.tool import Wanted, wanted_by

NAME = "tool_bash_0123456789abcdef.txt"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ({}, {}),
        ({"lines": "400-480"}, {"lines": "400-480"}),
        ({"lines": "400:480"}, {"lines": "400:480"}),
        ({"lines": "400, 480"}, {"lines": "400-480"}),
        ({"lines": "L400-L480"}, {"lines": "400-480"}),
        ({"lines": "400 to 480"}, {"lines": "400-480"}),
        ({"lines": "-80"}, {"lines": "-80"}),
        ({"lines": 400}, {"lines": "400"}),
        ({"lines": [400, 480]}, {"lines": "400-480"}),
        ({"lines": {"start": 400, "end": 480}}, {"lines": "400-480"}),
        ({"lines": None, "grep": None}, {}),
        ({"grep": "ERROR", "context": 3}, {"grep": "ERROR", "context": "3"}),
        ({"grep": "ERROR", "context": "3"}, {"grep": "ERROR", "context": "3"}),
        ({"context": 3}, {}),
        ({"grep": True, "lines": 1.5, "more": 1}, {}),
    ],
)
def test_arguments_are_taken_as_they_are_meant(arguments, asked):
    assert wanted_by(json.dumps({"id": NAME, **arguments})) == Wanted(NAME, asked)


@pytest.mark.parametrize("named", [NAME, f"/d/x/{NAME}", f"http://h:1/artifacts/{NAME}?lines=1", f"artifact:{NAME} "])
def test_an_artifact_is_found_in_its_path_or_url(named):
    assert wanted_by(json.dumps({"id": named})) == wanted_by(json.dumps(named)) == wanted_by(named) == Wanted(NAME, {})


@pytest.mark.parametrize("arguments", ["", "{}", "[]", "7", '{"id": 7}', '{"id": "../../etc/passwd"}', "{", "null"])
def test_what_names_no_artifact_is_told_apart(arguments):
    assert wanted_by(arguments) is None


NAMED = st.dictionaries(st.sampled_from(["id", "lines", "grep"]), st.text())


@given(st.one_of(st.text(max_size=60), NAMED.map(json.dumps)))
def test_no_arguments_raise(arguments):
    wanted_by(arguments)
