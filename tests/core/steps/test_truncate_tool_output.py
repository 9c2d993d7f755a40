from __future__ import annotations

import json

import pytest
from core.strategies import LONG_TEXTS, TEXTS, exchange, notices, part, pipeline, planned, spelled, user
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.budget import Budget
from proxy.core.conversation import Message
from proxy.core.edits import Reason
from proxy.core.excerpt import Direction, Limits
from proxy.core.measures import count_lines, utf8_length
from proxy.core.notices import MARK, is_ours
from proxy.core.steps.shorten_response import can_be_shortened
from proxy.core.steps.truncate_tool_output import NAMES_SHARE, NOTICE_BYTES, TruncateToolOutput
from proxy.core.tool_response import tool_response

thorough = settings(max_examples=80, deadline=None)
LIMITS = st.builds(
    Limits,
    st.one_of(st.integers(1, 50), st.integers(50, 3_000)),
    st.integers(256, 60_000),
    st.none() | st.integers(1_000, 9_000),
    st.sampled_from(Direction),
)
LONG = "".join(f"{number:05} an ordinary line of a log\n" for number in range(6_000))


def cut(content, limits=None, *, tool="ls", role="tool", kept=True, **settings_of_step):
    """The edits of one message."""
    step = TruncateToolOutput(limits or Limits(), **settings_of_step)
    message = Message.read(spelled({"role": role, "tool_call_id": "c", "content": content}))
    return list(step(3, message, tool, notices(kept=kept)))


def cut_text(text, limits=None, **settings_of_step):
    (edit,) = cut(text, limits, **settings_of_step)
    return json.loads(edit.replacement)


@given(TEXTS, LIMITS, st.none() | st.integers(100, 5_000))
@thorough
def test_a_result_is_cut_when_it_is_over_a_limit_and_is_then_within_all_of_them(text, limits, preview_chars):
    edits = cut(text, limits, preview_chars=preview_chars)
    if limits.admit(text):
        assert edits == []
        return
    for edit in edits:
        shown = json.loads(edit.replacement)
        assert utf8_length(shown) < utf8_length(text)
        assert is_ours(shown)
        assert edit.artifact.content == text.encode("utf-8", "surrogatepass")
        assert (edit.before_chars, edit.after_chars) == (len(text), len(shown))
        assert (edit.message, edit.path, edit.reason) == (3, ("content",), Reason.TRUNCATE_TOOL_OUTPUT)
        # Smaller limits than a notice takes have room for the notice only.
        least = NOTICE_BYTES / (1 - NAMES_SHARE)
        assert utf8_length(shown) <= max(limits.max_bytes, least)
        assert limits.max_chars is None or len(shown) <= max(limits.max_chars, least)
        assert count_lines(shown) <= max(limits.max_lines, 2)
    assert edits or utf8_length(text) < 1_000


def test_the_excerpt_and_the_artifact_together_are_the_result():
    (edit,) = cut(LONG, Limits(2_000, 20_000))
    shown = json.loads(edit.replacement)
    head, _, rest = shown.partition(MARK)
    tail = rest.partition("]\n")[2]
    whole = edit.artifact.content.decode()
    assert whole == LONG
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert min(len(head), len(tail)) > 4_000


def test_an_error_in_the_middle_stays():
    text = LONG + "FATAL: the cause\n" + LONG
    assert "FATAL: the cause" in cut_text(text)


def test_names_that_stand_only_in_the_gap_are_told():
    shown = cut_text("an ordinary line\n" * 9_000 + "def only_in_the_middle(\n" + "an ordinary line\n" * 9_000)
    assert "only_in_the_middle" in shown.partition("Names in what is left out: ")[2]


@pytest.mark.parametrize("direction", Direction)
def test_each_direction_keeps_its_end(direction):
    shown = cut_text(LONG, Limits(2_000, 10_000, None, direction))
    assert ("00000 an" in shown) == (direction is not Direction.TAIL)
    assert ("05999 an" in shown) == (direction is not Direction.HEAD)


def test_lines_are_limited_too():
    shown = cut_text("x\n" * 2_100, Limits(2_000, 51_200))
    assert count_lines(shown) <= 2_000
    assert count_lines(shown) > 1_900


@pytest.mark.parametrize("feed", ["\\n", "\\u000a", "\\u000A"])
def test_a_line_feed_counts_in_any_spelling(feed):
    raw = ('{"role":"tool","content":"' + f"some words here{feed}" * 2_001 + '"}').encode()
    assert list(TruncateToolOutput(Limits())(0, Message.read(raw), "", notices()))
    raw = ('{"role":"tool","content":"' + f"some words here{feed}" * 2_000 + '"}').encode()
    assert not list(TruncateToolOutput(Limits())(0, Message.read(raw), "", notices()))


def test_characters_of_chinese_are_counted_as_characters():
    text = "读取文件时发生异常\n" * 2_000
    shown = cut_text(text, Limits(10**6, 10**6, 4_000))
    assert 1_500 < shown.count("读取文件") * 9 < 4_000
    assert len(shown) <= 4_000


def test_a_preview_has_the_length_that_is_set_besides_the_notice():
    shown = cut_text("abcd efg\n" * 20_000, preview_chars=900)
    assert 500 <= shown.count("abcd efg\n") * 9 <= 900


def test_a_tool_has_limits_of_its_own_and_some_are_left_alone():
    step = {"tools": {"Read": Limits(10**6, 10**6)}, "never": frozenset({"Skill"})}
    assert cut(LONG, tool="Read", **step) == []
    assert cut(LONG * 6, tool="Read", **step)
    assert cut(LONG, tool="Bash", **step)
    assert cut(LONG * 6, tool="Skill", **step) == []


def test_the_name_of_a_tool_is_found_by_the_call_that_a_result_answers():
    made = planned([user(), *exchange([LONG], tool="Bash")], pipeline(Budget(10**9)))
    assert [(edit.tool, edit.artifact.id[:10]) for edit in made.edits] == [("Bash", "tool_Bash_")]


def test_a_message_that_names_its_tool_is_believed():
    old = {"role": "function", "name": "old_name", "content": LONG}
    made = planned([old, {**exchange([LONG])[1], "name": "own_name"}], pipeline(Budget(10**9)))
    assert [edit.tool for edit in made.edits] == ["old_name", "own_name"]


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", ""])
def test_only_results_are_cut(role):
    assert cut(LONG, role=role) == []


def test_each_text_of_a_list_is_cut_by_itself_and_other_parts_stay():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}}
    edits = cut([part("short"), image, part(LONG), {"type": "text", "text": 7}, "text", part(LONG)])
    assert [edit.path for edit in edits] == [("content", 2, "text"), ("content", 5, "text")]


@pytest.mark.parametrize("content", [None, 7, {"text": LONG}])
def test_a_content_of_another_kind_is_left_alone(content):
    assert cut(content) == []


@given(LONG_TEXTS, LIMITS)
@thorough
def test_an_excerpt_is_not_cut_again(text, limits):
    for edit in cut(text, limits):
        assert cut(json.loads(edit.replacement), limits) == []


def test_a_log_that_quotes_a_notice_is_cut_like_any_other():
    quoted = cut_text(LONG)
    assert cut(quoted * 3) == []
    assert cut(quoted * 30)
    assert cut("[context-proxy: hello]\n" + LONG)


def test_what_looks_like_json_is_kept_as_json():
    assert cut(json.dumps({"rows": [LONG]}))[0].artifact.id.endswith(".json")
    assert cut("{" + LONG)[0].artifact.id.endswith(".txt")


# The common tool-response shape


def response(**members):
    return {"status": "success", "data": LONG, "text": "done", "stats": {"ms": 1.50}, **members}


def test_a_tool_response_stays_one():
    text = json.dumps(response(context={"cwd": "/x"}, extra=[1]))
    (edit,) = cut(text)
    shown = json.loads(json.loads(edit.replacement))
    assert list(shown) == ["status", "data", "text", "stats", "context", "extra"]
    assert shown["status"] == "partial"
    assert (shown["stats"], shown["context"], shown["extra"]) == ({"ms": 1.50}, {"cwd": "/x"}, [1])
    assert '"stats":{"ms": 1.5}' in json.loads(edit.replacement)
    assert shown["text"].startswith(MARK)
    assert edit.artifact.id in shown["text"]
    assert edit.artifact.content.decode() == text
    data = shown["data"]
    assert (data["truncated"], list(data)) == (True, ["truncated", "truncation", "preview"])
    truncation = data["truncation"]
    assert truncation == {
        "direction": "both",
        "max_lines": 2_000,
        "max_bytes": 51_200,
        "original_lines": 6_000,
        "original_bytes": len(LONG),
        "kept_lines": truncation["kept_lines"],
        "kept_bytes": truncation["kept_bytes"],
        "full_output_path": f"/data/tool-output/{edit.artifact.id}",
    }
    head, tail = data["preview"].split("\n[…]\n")
    assert LONG.startswith(head)
    assert LONG.endswith(tail.removeprefix("\n"))
    assert count_lines(head) + count_lines(tail) == truncation["kept_lines"]
    assert truncation["kept_bytes"] > 30_000


def test_an_error_stays_an_error():
    text = json.dumps(response(status="error", error={"message": "it broke"}))
    shown = json.loads(cut_text(text))
    assert (shown["status"], shown["error"]) == ("error", {"message": "it broke"})


@pytest.mark.parametrize(("skip", "cuts"), [(True, 0), (False, 1), ("yes", 1), (1, 1)])
def test_a_response_may_ask_to_be_left_alone(skip, cuts):
    assert len(cut(json.dumps(response(context={"truncation_skip": skip})))) == cuts


def test_data_of_any_kind_is_previewed_as_its_json():
    shown = json.loads(cut_text(json.dumps(response(data=[{"row": n, "of": "x\n"} for n in range(9_000)]))))
    assert shown["data"]["preview"].startswith('[{"row": 0, "of": "x')
    assert shown["data"]["truncation"]["original_lines"] == 1


def test_a_long_text_beside_short_data_gives_way():
    shown = json.loads(cut_text(json.dumps(response(data=["all", "rows"], text=LONG))))
    assert len(shown["text"]) < 200
    assert shown["data"]["preview"] == '["all", "rows"]'


@given(
    st.one_of(TEXTS, st.sampled_from(['"' * 60_000, "\x00" * 60_000, "\\" * 90_000, "中" * 90_000, "\n" * 90_000])),
    st.dictionaries(st.sampled_from(["text", "stats", "context", "error"]), TEXTS, max_size=2),
    st.booleans(),
    LIMITS,
)
@thorough
def test_a_tool_response_is_valid_and_within_its_limits_whatever_escapes_it_needs(data, others, ascii_only, limits):
    try:
        text = json.dumps({"status": "success", "data": data, **others}, ensure_ascii=ascii_only)
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps({"status": "success", "data": data, **others})
    for edit in cut(text, limits):
        told = json.loads(edit.replacement)
        if not can_be_shortened(tool_response(text), limits):
            assert is_ours(told)
            continue
        shown = json.loads(told)
        assert shown["status"] == "partial"
        assert {name: shown[name] for name in others if name != "text"} == {
            name: value for name, value in others.items() if name != "text"
        }
        if shown["data"]["preview"]:
            assert utf8_length(told) <= limits.max_bytes
            assert limits.max_chars is None or len(told) <= limits.max_chars
        truncation = shown["data"]["truncation"]
        assert (truncation["original_lines"], truncation["original_bytes"]) == (count_lines(data), utf8_length(data))
        assert truncation["kept_lines"] <= truncation["original_lines"]
        assert truncation["kept_bytes"] <= utf8_length(shown["data"]["preview"])
        assert utf8_length(told) < utf8_length(text)


@pytest.mark.parametrize("odd", ["[1]", '{"status": "x"}', '{"data": 1}', '{"status": "success", "data": ', "{}"])
def test_what_only_looks_like_a_tool_response_is_cut_as_text(odd):
    (edit,) = cut(odd + " " * 5 + LONG)
    assert "lines" in json.loads(edit.replacement)


@pytest.mark.parametrize("member", ["stats", "output"])
def test_a_response_whose_other_members_are_over_the_limit_is_cut_as_text(member):
    shown = cut_text(json.dumps(response(**{member: LONG})))
    assert is_ours(shown)
    assert utf8_length(shown) <= Limits().max_bytes


@pytest.mark.parametrize("status", [200, 404, None])
def test_a_status_that_is_no_word_stays(status):
    assert json.loads(cut_text(json.dumps(response(status=status))))["status"] == status


def test_a_response_that_would_not_get_shorter_stays():
    assert cut(json.dumps({"status": "success", "data": "x" * 300}), Limits(2_000, 256)) == []


def test_a_preview_of_a_response_has_the_length_that_is_set():
    shown = json.loads(cut_text(json.dumps(response()), preview_chars=500))
    assert 250 < len(shown["data"]["preview"]) <= 520


def test_a_response_that_cannot_be_kept_names_no_place():
    (edit,) = cut(json.dumps(response()), kept=False)
    shown = json.loads(json.loads(edit.replacement))
    assert shown["data"]["truncation"]["full_output_path"] is None
