from __future__ import annotations

import json

import pytest

from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.tool import MAX_TOOLS
from proxy.wire.tool_list import OwnTool

DEFINITION = b'{"ours":1}'


class Reader:
    """Reads a list of names, and counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, tools):
        self.asked += 1
        return json.loads(tools) or []


def own_tool():
    reader = Reader()
    return OwnTool(DEFINITION, reader), reader


@pytest.mark.parametrize(
    ("tools", "made"),
    [
        (b'["weather"]', b'["weather",{"ours":1}]'),
        (b'[ "weather" , "x" ]', b'["weather" , "x",{"ours":1}]'),
        (b"[ ]", b'[{"ours":1}]'),
        (b"null", b'[{"ours":1}]'),
        (b'"weather"', None),
    ],
)
def test_the_tool_stands_at_the_end_and_what_the_client_wrote_keeps_its_bytes(tools, made):
    assert own_tool()[0].appended({"tools": tools}, "always") == made


@pytest.mark.parametrize("tools", [b"null", b"[]"])
def test_an_agent_without_tools_is_given_ours_only_where_it_always_is(tools):
    assert own_tool()[0].appended({"tools": tools}, "auto") is None
    assert own_tool()[0].appended({}, "auto") is None
    assert own_tool()[0].appended({}, "always") == b'[{"ours":1}]'


def test_an_operator_who_wants_no_tool_gets_none():
    own, reader = own_tool()
    assert own.appended({"tools": b'["weather"]'}, "never") is None
    assert reader.asked == 0


def test_the_tool_is_never_one_too_many_nor_beside_one_of_its_name():
    def appended(names):
        return own_tool()[0].appended({"tools": json.dumps(names).encode()}, "always")

    assert appended([RETRIEVAL_TOOL]) is None
    assert appended([f"weather_{number}" for number in range(MAX_TOOLS)]) is None
    assert appended([f"weather_{number}" for number in range(MAX_TOOLS - 1)]) is not None


@pytest.mark.parametrize(("length", "times"), [(10, 1), (300 * 1024, 2)])
def test_a_list_of_everyday_size_is_read_once_for_all_requests_of_its_agent(length, times):
    own, reader = own_tool()
    members = {"tools": json.dumps(["w" * length]).encode()}
    assert own.appended(members, "auto") == own.appended(dict(members), "auto")
    assert reader.asked == times
