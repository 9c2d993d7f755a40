from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.strategies import exchange, pipeline, planned, user

from proxy.core import retrieval_tool as own
from proxy.core.artifact_reading import MAX_CONTEXT, MAX_PATTERN_CHARACTERS, Query, Search
from proxy.core.compaction import Budget
from proxy.core.notices import MARK, READING, as_text, say
from proxy.core.retrieval_tool import RETRIEVAL_TOOL, SEARCH_SPEC, ArtifactSearch, Wanted, is_page, wanted_by
from proxy.core.text import ExcerptLimits
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable, BadArtifactQuery, RangeOutside
from proxy.wire.chat_completions import ChatMessage

NAME = "tool_bash_0123456789abcdef.txt"


@pytest.mark.parametrize(
    ("arguments", "parameters"),
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
def test_arguments_are_taken_as_they_are_meant(arguments, parameters):
    assert wanted_by(json.dumps({"id": NAME, **arguments})) == Wanted(NAME, parameters)


@pytest.mark.parametrize("named", [NAME, f"/d/x/{NAME}", f"http://h:1/artifacts/{NAME}?lines=1", f"artifact:{NAME} "])
def test_an_artifact_is_found_in_its_path_or_url(named):
    assert wanted_by(json.dumps({"id": named})) == wanted_by(json.dumps(named)) == wanted_by(named) == Wanted(NAME, {})


@pytest.mark.parametrize("arguments", ["", "{}", "[]", "7", '{"id": 7}', '{"id": "../../etc/passwd"}', "{", "null"])
def test_an_invalid_artifact_name_is_recognised(arguments):
    assert wanted_by(arguments) is None


NAMED = st.dictionaries(st.sampled_from(["id", "lines", "grep"]), st.text())


@given(st.one_of(st.text(max_size=60), NAMED.map(json.dumps)))
def test_no_arguments_raise(arguments):
    wanted_by(arguments)


EVERYTHING = ArtifactSearch(None, "tool_")


@pytest.mark.parametrize("arguments", [{}, {"grep": None, "tool": "", "context": None}, {"context": 3, "other": 1}])
def test_a_call_without_a_pattern_requests_everything(arguments):
    assert ArtifactSearch.parse(arguments) == EVERYTHING


@pytest.mark.parametrize(("given", "context"), [({}, 0), ({"context": 2}, 2), ({"context": "2"}, 2)])
def test_a_pattern_has_no_context_unless_requested(given, context):
    query = ArtifactSearch.parse({"grep": "ERROR", **given})
    assert query.query == Query(search=Search("ERROR", context))


def test_a_tool_is_matched_by_its_form_in_artifact_names():
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


LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
ARTIFACT = "tool_sh_0123456789abcdef.txt"
ERRORS = [
    ArtifactNotFound("no such artifact"),
    ArtifactStoreUnavailable("the disk is gone"),
    BadArtifactQuery(f"`grep` must have 1 to {MAX_PATTERN_CHARACTERS} characters", param="grep"),
    BadArtifactQuery(f"`context` must be 0 to {MAX_CONTEXT} lines", param="context"),
    BadArtifactQuery("`tool` must be a text", param="tool"),
    RangeOutside("lines 5-9 of 3"),
]


@LANGUAGES
@pytest.mark.parametrize("name", [ARTIFACT, ""], ids=["read", "searched"])
def test_a_call_that_cannot_be_answered_gets_the_artifact_and_the_cause_in_one_line(name, language):
    notices = [own.failed(name, error, language) for error in ERRORS]
    for notice, error in zip(notices, ERRORS, strict=True):
        assert notice.startswith(as_text(MARK, language))
        assert (notice[-2:], notice.count("\n"), name in notice) == ("]\n", 1, True)
        assert (error.message in notice) == (language == "en")
    assert len({*notices}) == len(ERRORS), "each has words of its own"
    assert str(MAX_PATTERN_CHARACTERS) in notices[2]
    assert str(MAX_CONTEXT) in notices[3]


@LANGUAGES
def test_what_a_person_reads_is_a_sentence_and_no_notice_for_models(language):
    for kind in ("stopped", "withheld", "broken"):
        text = say(READING, kind, language, rounds=8, problem="500")
        assert text.strip()
        assert MARK not in text


HEADER = "[context-proxy: lines 1-80 of 5000 of tool_sh_0123456789abcdef.txt, 1,000 of 90,000 bytes]\n"
PAGE = HEADER + "a line of the page\n" * 60


def offering(budget, limits):
    """The steps of a request that has the tool: without it, such results are those of another tool of that name."""
    made = pipeline(budget, limits=limits)
    return dataclasses.replace(made, notices=replace(made.notices, way=replace(made.notices.way, tool=True)))


@pytest.mark.parametrize(
    ("tool", "message", "is_one"),
    [
        (RETRIEVAL_TOOL, {"role": "tool", "content": PAGE}, True),
        (RETRIEVAL_TOOL, {"role": "tool", "content": [{"type": "text", "text": PAGE}]}, True),
        (RETRIEVAL_TOOL, {"role": "tool", "content": own.notice("many", "en", calls=8)}, True),
        (RETRIEVAL_TOOL, {"role": "tool", "content": own.notice("no_room", "zh")}, True),
        (RETRIEVAL_TOOL, {"role": "tool", "content": "a tool of the same name"}, False),
        (RETRIEVAL_TOOL, {"role": "user", "content": PAGE}, False),
        ("cat", {"role": "tool", "content": PAGE}, False),
        (RETRIEVAL_TOOL, {"role": "tool", "content": None}, False),
    ],
)
def test_what_is_a_page(tool, message, is_one):
    assert is_page(ChatMessage.read(json.dumps(message).encode()), tool) == is_one


@given(st.integers(300, 6_000), st.integers(1, 4))
def test_a_page_is_sent_whole_or_goes_with_its_exchange(room, others):
    messages = [user("task"), *exchange([PAGE], tool=RETRIEVAL_TOOL)]
    for number in range(others):
        messages += exchange(["another result\n" * 300], first_call=10 + number)
    made = planned(messages, offering(Budget(room), ExcerptLimits(20, 300)))
    reported = [json.loads(raw) for raw in made.messages]
    pages = [message["content"] for message in reported if message.get("tool_call_id") == "call_0"]
    assert pages == [] or PAGE in pages[0]


def test_a_page_in_the_newest_exchange_is_not_what_gives_way():
    messages = [user("task"), *exchange([PAGE, "another result\n" * 3_000], tool=RETRIEVAL_TOOL)]
    made = planned(messages, offering(Budget(2_000), ExcerptLimits(4_000, 80_000)))
    contents = [json.loads(raw).get("content") or "" for raw in made.messages]
    assert any(PAGE in content for content in contents)
    assert made.fits


@pytest.mark.parametrize("later", [0, 1, 3])
def test_a_page_that_was_put_back_beside_results_of_the_client_gives_way_like_them(later):
    called = exchange([PAGE * 20, "small"], tool=RETRIEVAL_TOOL)
    calls = called[0]["tool_calls"]
    calls[1]["function"]["name"] = "fetch"
    messages = [user("task"), *called]
    plans = []
    for number in range(later + 1):
        plans.append(planned(messages, offering(Budget(1_100), ExcerptLimits(20, 300))))
        messages += [{"role": "assistant", "content": "So."}, user(f"next {number}")]
    for made in plans:
        assert made.fits
        (page,) = [raw.decode() for raw in made.messages if b"call_0" in raw and b'"tool"' in raw]
        assert HEADER.strip().replace(MARK, "[quoted text: ") in page
        assert len(page) < len(PAGE * 20) / 4
    assert all(made.messages[:3] == plans[0].messages[:3] for made in plans)
