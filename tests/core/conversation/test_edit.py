from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_bytes import STRINGS, VALUES, spelled_array, spelled_object

from proxy.core.artifact import Artifact
from proxy.core.text import jsontext
from proxy.core.text.jsontext import spliced

SAFE = set(string.ascii_letters + string.digits + "_-.")


@given(st.binary(max_size=50), st.text(st.characters(categories=None), max_size=2_000))
def test_an_artifact_is_named_by_its_bytes_and_its_name_is_one_safe_path_segment(content, tool):
    name = Artifact(content, tool, "json").id
    assert name == Artifact(content, tool, "json").id
    assert set(name) <= SAFE
    assert len(name) <= 80
    assert name.startswith("tool_")
    assert name.endswith(".json")
    assert Artifact(content + b"x", tool, "json").id != name


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("../../etc/passwd", "tool_etc-passwd_e3b0c44298fc1c14.txt"),
        ("", "tool_messages_e3b0c44298fc1c14.txt"),
        ("工具", "tool_messages_e3b0c44298fc1c14.txt"),
        ("a" * 1_500, f"tool_{'a' * 48}_e3b0c44298fc1c14.txt"),
    ],
)
def test_the_name_of_a_tool_cannot_lead_out_of_a_folder(tool, name):
    assert Artifact(b"", tool).id == name


def test_content_never_shows_where_artifacts_are_printed():
    assert "secret" not in repr(Artifact(b"secret"))


@given(st.lists(st.tuples(STRINGS, VALUES), max_size=5, unique_by=lambda pair: json.loads(pair[0])), st.data())
def test_splicing_changes_what_it_names_and_nothing_else(members, data):
    raw = spelled_object(members, b" ")
    names = [json.loads(name) for name, _ in members]
    changed = data.draw(st.sets(st.sampled_from(names)) if names else st.just(set()))
    taken_out = data.draw(st.sets(st.sampled_from(sorted(changed))) if changed else st.just(set()))
    changes = {(name,): None if name in taken_out else b"[ 1 ]" for name in changed}
    found = jsontext.members(spliced(raw, changes))
    expected = {
        name: b"[ 1 ]" if name in changed else value
        for name, (_, value) in zip(names, members, strict=True)
        if name not in taken_out
    }
    assert {name: bytes(value) for name, value in found.items()} == expected
    assert list(found) == list(expected)


@given(st.lists(VALUES, min_size=1, max_size=5), st.data())
def test_items_are_changed_and_taken_out_by_their_place(items, data):
    place = data.draw(st.integers(0, len(items) - 1))
    raw = spelled_array(items)
    assert list(map(bytes, jsontext.items(spliced(raw, {(place,): b'"new"'})))) == [
        *items[:place],
        b'"new"',
        *items[place + 1 :],
    ]
    assert list(map(bytes, jsontext.items(spliced(raw, {(place,): None})))) == items[:place] + items[place + 1 :]


def test_what_lies_deep_is_reached_and_its_neighbours_keep_their_bytes():
    raw = b'{"role" : "tool","content":[ {"type":"text" ,"text":"a"},  {"type":"text","text": "b"} ],"x":1.0}'
    assert spliced(raw, {("content", 1, "text"): b'"c"'}) == (
        b'{"role":"tool","content":[{"type":"text" ,"text":"a"},{"type":"text","text":"c"}],"x":1.0}'
    )


def test_an_empty_path_is_the_value_itself():
    assert spliced(b"[1]", {(): b"2"}) == b"2"


def test_a_member_that_is_not_there_is_added_or_was_out_already():
    assert spliced(b'{"a":1}', {("b",): b"2"}) == b'{"a":1,"b":2}'
    assert spliced(b'{"a":1}', {("b",): None, ("c", "d"): b"2"}) == b'{"a":1}'


def test_a_path_through_something_else_is_not_json_of_that_kind():
    with pytest.raises(jsontext.NotJson):
        spliced(b'{"a":1}', {("a", "b"): b"2"})
