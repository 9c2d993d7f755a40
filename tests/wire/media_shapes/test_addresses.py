from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.artifact import Artifact
from proxy.wire.media_shapes.addresses import address_of, addresses_in

URL = "https://example.org/a.png"
ID = Artifact(b"image", "Read", "png").id
HELD = f"artifact:{ID}"


def routed(**members):
    return json.dumps(members)


JSON = st.recursive(
    st.sampled_from([None, 7, "", URL, HELD, "routing", "image_url", "file", routed(routing="file", content=HELD)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "url", "image_url", "file", "file_data", "routing", "imageUrl", "artifact"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_value_may_be_asked_for_its_address(part):
    assert isinstance(address_of(part), str)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://h/a.png"}},
        {"type": "image_url", "image_url": "https://h/a.png"},
        {"type": "input_image", "image_url": "https://h/a.png"},
        {"url": "https://h/a.png"},
        "https://h/a.png",
    ],
)
def test_an_image_names_its_address_in_every_spelling(part):
    assert address_of(part) == "https://h/a.png"


@pytest.mark.parametrize(
    ("inner", "address"),
    [
        ({"file_id": "file-1", "file_data": "data:x"}, "data:x"),
        ({"file_url": "https://h/a.pdf", "file_id": "file-1"}, "https://h/a.pdf"),
        ({"file_id": "file-1"}, "file-1"),
        ({"file_id": 7}, ""),
        ({"filename": "a.pdf"}, ""),
    ],
)
def test_of_several_members_of_a_file_the_one_that_leads_to_its_content_is_its_address(inner, address):
    assert address_of({"type": "file", "file": inner}) == address_of(inner) == address


def test_an_image_on_the_web_is_fetched_here_and_a_file_on_the_web_is_left_to_the_upstream():
    image = {"type": "image_url", "image_url": {"url": "https://h/a.png"}}
    file = {"type": "file", "file": {"file_data": "https://h/a.pdf"}}
    kept = {"type": "file", "file": {"file_data": "artifact:tool_x"}}
    assert list(addresses_in([image, file, kept], is_result=False)) == ["https://h/a.png", "artifact:tool_x"]


@pytest.mark.parametrize(
    ("result", "addresses"),
    [
        ({"routing": "image_url", "imageUrl": {"url": "https://h/a.png"}}, ["https://h/a.png"]),
        ({"routing": "file", "file": {"file_data": "artifact:x"}}, ["artifact:x"]),
        ({"routing": "file", "file": {"file_data": "https://h/a.pdf"}}, []),
        ({"routing": "text", "content": "artifact:x"}, []),
        ({"content": "artifact:x"}, []),
    ],
)
def test_only_a_structured_result_of_a_tool_names_addresses_in_its_text(result, addresses):
    text = json.dumps(result)
    assert list(addresses_in(text, is_result=True)) == addresses
    assert list(addresses_in([{"type": "text", "text": text}], is_result=True)) == addresses
    assert list(addresses_in(text, is_result=False)) == []
