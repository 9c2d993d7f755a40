from __future__ import annotations

import pytest

from proxy.core.artifact_reading.patterns import MAX_CONTEXT, Search
from proxy.core.retrieval_tool.search_tool import MAX_HITS_OF_ONE, SEARCH_SPEC, ArtifactSearch
from proxy.errors import BadArtifactQuery

EVERYTHING = ArtifactSearch(None, "tool_")


@pytest.mark.parametrize("arguments", [{}, {"grep": None, "tool": "", "context": None}, {"context": 3, "other": 1}])
def test_a_call_without_a_pattern_asks_for_everything(arguments):
    assert ArtifactSearch.parse(arguments) == EVERYTHING


@pytest.mark.parametrize(("given", "context"), [({}, 0), ({"context": 2}, 2), ({"context": "2"}, 2)])
def test_a_pattern_has_no_context_unless_it_is_asked_for(given, context):
    asked = ArtifactSearch.parse({"grep": "ERROR", **given})
    assert asked.search == Search("ERROR", context, MAX_HITS_OF_ONE)


def test_a_tool_is_meant_as_it_stands_in_the_names_of_its_artifacts():
    assert ArtifactSearch.parse({"tool": "my tool/2"}).beginning == "tool_my-tool-2_"


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"grep": 7}, "grep"),
        ({"grep": "("}, "grep"),
        ({"tool": ["Bash"]}, "tool"),
        ({"grep": "a", "context": "many"}, "context"),
        ({"grep": "a", "context": True}, "context"),
        ({"grep": "a", "context": MAX_CONTEXT + 1}, "context"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(arguments, param):
    with pytest.raises(BadArtifactQuery) as refused:
        ArtifactSearch.parse(arguments)
    assert refused.value.param == param


def test_every_parameter_is_described():
    assert all(described["description"] for described in SEARCH_SPEC.schema["properties"].values())
