from __future__ import annotations

import contextlib
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_bytes import BLANKS, STRINGS, VALUES, spelled_array, spelled_object

from proxy.core.text import jsontext


@given(st.lists(VALUES, max_size=6), BLANKS)
def test_the_items_of_an_array_keep_their_bytes(items, blank):
    assert [bytes(item) for item in jsontext.items(blank + spelled_array(items, blank) + blank)] == items


@given(st.lists(st.tuples(STRINGS, VALUES), max_size=6), BLANKS)
def test_the_members_of_an_object_keep_their_bytes_and_the_last_of_one_name_counts(members, blank):
    by_name = {json.loads(name.decode("utf-8", "surrogateescape")): value for name, value in members}
    found = jsontext.members(blank + spelled_object(members, blank) + blank)
    assert list(found) == list(by_name)
    assert [bytes(value) for value in found.values()] == list(by_name.values())


@given(VALUES)
def test_a_value_opens_as_the_standard_library_opens_it(raw):
    opened = jsontext.value(raw)
    expected = json.loads(raw.decode("utf-8", "surrogateescape"), parse_int=_any_whole_number)
    assert repr(opened) == repr(expected)  # repr, as NaN is not NaN


def _any_whole_number(digits):
    return int(digits) if len(digits) < 4_000 else math.inf


@given(st.lists(st.tuples(st.text(st.characters(categories=None)), VALUES), max_size=5))
def test_what_is_joined_opens_again_with_the_same_bytes(members):
    parts = dict(members)
    found = jsontext.members(jsontext.join_object(parts))
    assert {name: bytes(value) for name, value in found.items()} == parts
    assert [bytes(item) for item in jsontext.items(jsontext.join_array(list(parts.values())))] == list(parts.values())


@given(st.binary(max_size=60))
def test_bytes_that_are_no_json_raise_nothing_else(raw):
    for read in (jsontext.members, jsontext.items, jsontext.value):
        with contextlib.suppress(jsontext.NotJson):
            assert read(raw) is not Ellipsis


@pytest.mark.parametrize("byte_order_mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_does_no_harm(byte_order_mark):
    assert bytes(jsontext.members(byte_order_mark + b'{"a": 1 }')["a"]) == b"1"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_other_unicode_encodings_are_read_and_become_utf_8(encoding):
    body = '{"a":"é\ud800","b":[1]}'.encode(encoding, "surrogatepass")
    assert {name: bytes(value) for name, value in jsontext.members(body).items()} == {
        "a": '"é\ud800"'.encode("utf-8", "surrogatepass"),
        "b": b"[1]",
    }


@pytest.mark.parametrize(
    ("raw", "found"),
    [(b"[1]", "an array"), (b'"x"', "a string"), (b"true", "a boolean"), (b"null", "null"), (b"5", "a number")],
)
def test_another_kind_of_value_is_named(raw, found):
    with pytest.raises(jsontext.NotJson, match=f"expected a JSON object, found {found}"):
        jsontext.members(raw)


def test_an_object_is_no_array():
    with pytest.raises(jsontext.NotJson, match="expected a JSON array, found an object"):
        jsontext.items(b'{"a": NaN}')


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_what_is_nested_too_deeply_is_refused_in_words(opening):
    with pytest.raises(jsontext.NotJson, match="nested too deeply"):
        jsontext.value(opening * 200_000)


@pytest.mark.parametrize(
    "raw", [b'{"a":"secret" x}', b'{"a":"\xffsecret', b'{"a":NaN secret}', b"secret", b'["secret\\x"]']
)
def test_errors_are_reported_without_the_content(raw):
    with pytest.raises(jsontext.NotJson) as caught:
        jsontext.members(raw)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_lone_surrogates_are_written_as_escapes():
    assert jsontext.dump(["\ud800", "é\\"]) == '["\\ud800","é\\\\"]'.encode()
    assert jsontext.dump({"\ud800": None, "raw": msgspec.Raw(b"1.0")}) == b'{"\\ud800":null,"raw":1.0}'
    assert jsontext.dump(["é"]) == '["é"]'.encode()


@given(st.binary(max_size=40) | VALUES | st.lists(VALUES, min_size=1, max_size=3).map(b",".join))
def test_the_bytes_of_any_message_survive_a_round_trip_through_json(raw):
    reported = jsontext.embedded(raw)
    assert jsontext.taken_out(reported) == raw
    assert jsontext.items(b"[" + reported + b"]")


@given(VALUES.filter(lambda raw: not raw.startswith(b'"')))
def test_json_is_written_as_it_is(raw):
    assert jsontext.embedded(raw) == raw


@given(st.lists(st.tuples(STRINGS, VALUES), max_size=5, unique_by=lambda pair: json.loads(pair[0])), st.data())
def test_splicing_changes_what_it_names_and_nothing_else(members, data):
    raw = spelled_object(members, b" ")
    names = [json.loads(name) for name, _ in members]
    changed = data.draw(st.sets(st.sampled_from(names)) if names else st.just(set()))
    taken_out = data.draw(st.sets(st.sampled_from(sorted(changed))) if changed else st.just(set()))
    changes = {(name,): None if name in taken_out else b"[ 1 ]" for name in changed}
    found = jsontext.members(jsontext.spliced(raw, changes))
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
    assert list(map(bytes, jsontext.items(jsontext.spliced(raw, {(place,): b'"new"'})))) == [
        *items[:place],
        b'"new"',
        *items[place + 1 :],
    ]
    assert (
        list(map(bytes, jsontext.items(jsontext.spliced(raw, {(place,): None})))) == items[:place] + items[place + 1 :]
    )


def test_what_lies_deep_is_reached_and_its_neighbours_keep_their_bytes():
    raw = b'{"role" : "tool","content":[ {"type":"text" ,"text":"a"},  {"type":"text","text": "b"} ],"x":1.0}'
    assert jsontext.spliced(raw, {("content", 1, "text"): b'"c"'}) == (
        b'{"role":"tool","content":[{"type":"text" ,"text":"a"},{"type":"text","text":"c"}],"x":1.0}'
    )


def test_an_empty_path_is_the_value_itself():
    assert jsontext.spliced(b"[1]", {(): b"2"}) == b"2"


def test_a_member_that_is_not_there_is_added_or_was_out_already():
    assert jsontext.spliced(b'{"a":1}', {("b",): b"2"}) == b'{"a":1,"b":2}'
    assert jsontext.spliced(b'{"a":1}', {("b",): None, ("c", "d"): b"2"}) == b'{"a":1}'


def test_a_path_through_something_else_is_not_json_of_that_kind():
    with pytest.raises(jsontext.NotJson):
        jsontext.spliced(b'{"a":1}', {("a", "b"): b"2"})


def test_a_value_that_nothing_changes_keeps_its_bytes():
    assert jsontext.spliced(b'{ "a" : 1 }', {}) == b'{ "a" : 1 }'
    assert jsontext.spliced(b"[ 1 ]", {}) == b"[ 1 ]"


@pytest.mark.parametrize(
    ("text", "written"),
    [('{"a" : 1}', {"a": 1}), ("[1]", {"text": "[1]"}), ("cut", {"text": "cut"}), ("", {"text": ""})],
)
def test_the_text_of_an_object_is_that_object_and_another_text_becomes_its_member(text, written):
    assert json.loads(jsontext.dump_object(text)) == written


def test_half_a_surrogate_pair_may_be_in_the_text_of_an_object():
    assert json.loads(jsontext.dump_object("a\ud800"))["text"] == "a\ud800"
