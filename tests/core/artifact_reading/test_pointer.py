from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.artifact_reading.pointer import part_at
from proxy.errors import BadArtifactQuery

NAMES = st.sampled_from(["", "a", "a/b", "~", "~1", "0", "01", "é", "m~n", " ", '"'])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=20,
)


def walks(value, pointer=""):
    yield pointer, value
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in below:
        yield from walks(inner, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}")


@given(VALUES, st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_part_is_found_where_a_walk_finds_it(value, pretty):
    text = json.dumps(value, indent=1 if pretty else None).encode()
    for pointer, part in walks(value):
        found = part_at(text, pointer)
        if isinstance(part, str):
            assert found == part.encode()
        else:
            assert json.loads(found) == part


# https://www.rfc-editor.org/rfc/rfc6901#section-5
RFC = b'{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\\\j":5,"k\\"l":6," ":7,"m~n":8}'


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", RFC),
        ("/foo", b'["bar","baz"]'),
        ("/foo/0", b"bar"),
        ("/", b"0"),
        ("/a~1b", b"1"),
        ("/c%d", b"2"),
        ("/e^f", b"3"),
        ("/g|h", b"4"),
        ("/i\\j", b"5"),
        ('/k"l', b"6"),
        ("/ ", b"7"),
        ("/m~0n", b"8"),
    ],
)
def test_the_examples_of_the_standard(pointer, found):
    assert part_at(RFC, pointer) == found


@pytest.mark.parametrize(
    "pointer",
    ["foo", "/foo/2", "/foo/-", "/foo/01", "/foo/+1", "/foo/٠", "/none", "/~2", "/m~", "/foo/0/x", "/" * 1_001],
)
def test_what_is_not_there_or_no_pointer_is_refused_without_showing_content(pointer):
    with pytest.raises(BadArtifactQuery) as refused:
        part_at(RFC, pointer)
    assert refused.value.param == "json"
    assert "bar" not in refused.value.message


def test_a_pointer_leads_into_a_string_that_is_json_and_shows_its_text_in_lines():
    arguments = json.dumps({"path": "a.py", "content": "def a():\n    return 1\n", "edits": [{"new": "é\nb"}]})
    kept = json.dumps({"messages": [{"tool_calls": [{"function": {"arguments": arguments}}]}]}).encode()
    call = "/messages/0/tool_calls/0/function/arguments"
    assert part_at(kept, f"{call}/content") == b"def a():\n    return 1\n"
    assert part_at(kept, f"{call}/edits/0/new") == "é\nb".encode()
    assert part_at(kept, call) == arguments.encode()


@pytest.mark.parametrize("text", ["words", "{broken", "5", '"{}"'])
def test_a_pointer_into_a_string_that_is_no_object_says_which_part_is_none(text):
    with pytest.raises(BadArtifactQuery, match=r"^/arguments is "):
        part_at(json.dumps({"arguments": text}).encode(), "/arguments/content")


@pytest.mark.parametrize(
    ("text", "pointer"), [(b"not json", ""), (b"not json", "/a"), (b"{broken", "/a"), (b"[1,", "/0")]
)
def test_what_is_no_json_is_refused(text, pointer):
    with pytest.raises(BadArtifactQuery, match="not JSON"):
        part_at(text, pointer)


def test_a_surrogate_in_a_string_comes_back_as_it_was_kept():
    assert part_at(b'["\\ud800"]', "/0") == "\ud800".encode("utf-8", "surrogatepass")
