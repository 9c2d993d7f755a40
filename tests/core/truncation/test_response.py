from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import TEXTS
from support.tool_results import LIMITS, LONG, cut, cut_text, response

from proxy.core.notices import MARK, is_ours
from proxy.core.text import ExcerptLimits, count_lines, utf8_length
from proxy.core.truncation import tool_response, with_note

JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
RESPONSES = st.builds(
    lambda more, status, data: {**more, "status": status, "data": data},
    st.dictionaries(st.sampled_from(["text", "stats", "context", "error", "x"]), JSON),
    JSON,
    JSON,
)


@given(RESPONSES, st.text(max_size=30))
def test_a_note_precedes_the_text_and_every_other_member_is_unchanged(response, note):
    found = tool_response(json.dumps(response))
    assert found is not None
    noted = json.loads(with_note(found, note))
    text = response.get("text")
    assert noted.pop("text") == (note + text if isinstance(text, str) else note)
    response.pop("text", None)
    assert noted == response


thorough = settings(max_examples=80, deadline=None)


def test_a_tool_response_stays_one():
    text = json.dumps(response(context={"cwd": "/x"}, extra=[1]))
    (edit,) = cut(text)
    shown = json.loads(edit.becomes)
    assert list(shown) == ["status", "data", "text", "stats", "context", "extra"]
    assert shown["status"] == "partial"
    assert (shown["stats"], shown["context"], shown["extra"]) == ({"ms": 1.50}, {"cwd": "/x"}, [1])
    assert '"stats":{"ms": 1.5}' in edit.becomes
    assert shown["text"].startswith(MARK)
    assert shown["text"].endswith("] done")
    assert edit.artifact.id in shown["text"]
    assert edit.artifact.content.decode() == text
    data = shown["data"]
    assert (data["truncated"], list(data)) == (True, ["truncated", "truncation", "preview"])
    truncation = data["truncation"]
    stated = {"direction": "both", "max_lines": 2_000, "max_bytes": 51_200, "original_lines": 6_000}
    stated |= {"original_bytes": len(LONG), "full_output_path": f"/data/tool-output/{edit.artifact.id}"}
    assert truncation == truncation | stated
    assert truncation.keys() - stated.keys() == {"kept_lines", "kept_bytes"}
    head, tail = data["preview"].split("\n[…]\n")
    assert LONG.startswith(head)
    assert LONG.endswith(tail.removeprefix("\n"))
    assert count_lines(head) + count_lines(tail) == truncation["kept_lines"]
    assert truncation["kept_bytes"] > 0.85 * 51_200


def test_an_error_stays_an_error():
    text = json.dumps(response(status="error", error={"message": "it broke"}))
    shown = json.loads(cut_text(text))
    assert (shown["status"], shown["error"]) == ("error", {"message": "it broke"})


@pytest.mark.parametrize(("skip", "cuts"), [(True, 0), (False, 1), ("yes", 1), (1, 1)])
def test_a_tool_response_may_opt_out_of_truncation(skip, cuts):
    assert len(cut(json.dumps(response(context={"truncation_skip": skip})))) == cuts


@pytest.mark.parametrize(
    ("found", "cuts"), [({"context": {"truncation_skip": True}}, 0), ({"context": []}, 1), ([], 1)]
)
def test_any_json_object_may_opt_out_of_truncation(found, cuts):
    text = json.dumps({**found, "rows": "x" * 90_000} if isinstance(found, dict) else [*found, "x" * 90_000])
    assert len(cut(text)) == cuts


def test_data_of_any_kind_is_previewed_as_the_beginning_of_its_json():
    rows = [{"row": n, "of": "x\n"} for n in range(9_000)]
    shown = json.loads(cut_text(json.dumps(response(data=rows))))
    preview, truncation = shown["data"]["preview"], shown["data"]["truncation"]
    assert json.dumps(rows).startswith(preview)
    assert (truncation["original_lines"], truncation["original_bytes"]) == (1, len(json.dumps(rows)))
    assert (truncation["direction"], truncation["kept_bytes"]) == ("head", len(preview))
    assert len(preview) > 0.75 * 51_200  # its quotes take two bytes each


@pytest.mark.parametrize(
    ("status", "data", "beside"),
    [("success", {"count": 3}, {"count": 3}), ("error", None, {}), ("success", [1, 2], {"value": [1, 2]})],
)
def test_a_response_whose_bulk_is_its_text_is_cut_there(status, data, beside):
    """A result of a terminal tool."""
    text = json.dumps(response(status=status, data=data, text=LONG))
    reported = cut_text(text)
    shown = json.loads(reported)
    assert len(reported) > 0.85 * 51_200
    assert shown["status"] == ("error" if status == "error" else "partial")
    assert shown["text"].startswith(MARK)
    truncation, preview = shown["data"].pop("truncation"), shown["data"].pop("preview")
    assert shown["data"] == {**beside, "truncated": True}
    assert (truncation["original_lines"], truncation["original_bytes"]) == (6_000, len(LONG))
    head, tail = preview.split("\n[…]\n")
    assert LONG.startswith(head)
    assert LONG.endswith(tail)
    assert truncation["kept_bytes"] == len(head) + len(tail)


@pytest.mark.parametrize("max_bytes", [100, 300, 1_000, 3_000, 9_000])
def test_a_response_stays_one_under_the_smallest_limits(max_bytes):
    text = json.dumps(response(context={"cwd": "/x" * 900}, error={"message": "why " * 20}))
    reported = cut_text(text, ExcerptLimits(2_000, max_bytes))
    shown = json.loads(reported)
    assert (shown["status"], shown["data"]["truncated"]) == ("partial", True)
    assert shown["text"].startswith(MARK)
    assert len(reported) <= max(max_bytes, 330)
    assert ("preview" in shown["data"]) == (max_bytes >= 300)
    assert ("context" in shown) == (max_bytes >= 9_000)
    assert ("error" in shown) == (max_bytes >= 1_000)


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
        reported = edit.becomes
        if is_ours(reported):
            continue
        shown = json.loads(reported)
        assert shown["status"] == "partial"
        for name in others.keys() & shown.keys() - {"text"}:
            assert shown[name] == others[name]
        assert utf8_length(reported) < utf8_length(text)
        if "truncation" not in shown["data"]:
            continue
        if shown["data"]["preview"]:
            assert utf8_length(reported) <= limits.max_bytes
            assert limits.max_chars is None or len(reported) <= limits.max_chars
        truncation = shown["data"]["truncation"]
        bulks = [(count_lines(one), utf8_length(one)) for one in (data, others.get("text", ""))]
        assert (truncation["original_lines"], truncation["original_bytes"]) in bulks
        assert truncation["kept_lines"] <= truncation["original_lines"]
        assert truncation["kept_bytes"] <= utf8_length(shown["data"]["preview"])


@pytest.mark.parametrize(
    "odd",
    [
        "[1]",
        'x {"status": 1, "data": 1}',
        '["status", "data"]',
        '{"status": "x"}',
        '{"data": 1}',
        '{"status": "success", "data": ',
        "{}",
    ],
)
def test_what_only_looks_like_a_tool_response_is_cut_as_text(odd):
    (edit,) = cut(odd + " " * 5 + LONG)
    assert "lines" in edit.becomes


@pytest.mark.parametrize("member", ["stats", "output"])
def test_a_response_whose_bulk_is_in_other_members_is_cut_as_text(member):
    shown = cut_text(json.dumps(response(**{member: LONG})))
    assert is_ours(shown)
    assert utf8_length(shown) <= ExcerptLimits().max_bytes


@pytest.mark.parametrize("status", [200, 404, None])
def test_a_status_that_is_no_word_stays(status):
    assert json.loads(cut_text(json.dumps(response(status=status))))["status"] == status


def test_a_response_that_would_not_get_shorter_stays():
    assert cut(json.dumps({"status": "success", "data": "x" * 100}), ExcerptLimits(2_000, 120)) == []


def test_a_preview_of_a_response_has_the_length_that_is_set():
    shown = json.loads(cut_text(json.dumps(response()), preview_chars=500))
    assert 450 < len(shown["data"]["preview"]) <= 520


def test_a_response_that_cannot_be_kept_names_no_place():
    (edit,) = cut(json.dumps(response()), kept=False)
    shown = json.loads(edit.becomes)
    assert shown["data"]["truncation"]["full_output_path"] is None
