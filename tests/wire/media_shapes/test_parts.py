from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import (
    PDF,
    PNG,
    WAV,
    anthropic_block,
    audio_part,
    base64_of,
    file_part,
    image_part,
    mcp_block,
    resource_block,
)

from proxy.core.conversation.attachment import Shape
from proxy.wire.media_shapes.parts import attachment_of

ENCODED = base64_of(PNG)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))
NAMES = st.sampled_from(
    ["type", "image_url", "url", "input_audio", "file", "data", "source", "resource", "blob", "inline_data", "mimeType"]
)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4))
)


@pytest.mark.parametrize(
    ("part", "shape", "declared", "name"),
    [
        (image_part(), Shape.IMAGE, "image/png", ""),
        ({"type": "image_url", "image_url": f"data:image/png;base64,{ENCODED}"}, Shape.IMAGE, "image/png", ""),
        ({"type": "image_url", "image_url": {"url": ENCODED}}, Shape.IMAGE, "", ""),
        ({"type": "input_image", "image_url": f"data:image/png;base64,{ENCODED}"}, Shape.IMAGE, "image/png", ""),
        ({"type": "video_url", "video_url": {"url": ENCODED}}, Shape.VIDEO, "", ""),
        ({"type": "audio_url", "audio_url": {"url": ENCODED}}, Shape.AUDIO_ADDRESS, "", ""),
        (audio_part(PNG, "mp3"), Shape.AUDIO, "mp3", ""),
        (file_part(PNG, "image/png", "a.pdf"), Shape.FILE, "image/png", "a.pdf"),
        ({"type": "file", "file": {"filename": "a", "file_data": ENCODED}}, Shape.FILE, "", "a"),
        ({"type": "input_file", "filename": "a", "file_data": ENCODED}, Shape.FILE, "", "a"),
        (mcp_block(), Shape.BLOCK, "image/png", ""),
        (mcp_block(declared="audio/wav", kind="audio"), Shape.BLOCK, "audio/wav", ""),
        (resource_block(PNG, "image/png", "file:///tmp/a.png?x"), Shape.BLOCK, "image/png", "a.png"),
        (anthropic_block(), Shape.BLOCK, "image/png", ""),
        (anthropic_block(kind="document") | {"title": "T"}, Shape.BLOCK, "image/png", "T"),
        ({"inline_data": {"mime_type": "image/png", "data": ENCODED}}, Shape.BLOCK, "image/png", ""),
        ({"inlineData": {"mimeType": "image/png", "data": ENCODED}}, Shape.BLOCK, "image/png", ""),
    ],
)
def test_each_shape_is_known_with_its_claims(part, shape, declared, name):
    found = attachment_of(part)
    assert (found.shape, found.declared, found.name, found.address) == (shape, declared, name, "")
    assert found.content() == PNG
    assert found.head(12) == PNG[:12]
    assert abs(found.byte_count - len(PNG)) < 4
    assert found.is_part


URL_PART = {"type": "image_url", "image_url": {"url": "https://x.org/d/a.png"}}


@pytest.mark.parametrize("stated", [{"filename": "b.bin"}, {"metadata": {"filename": "b.bin"}}, {"fileName": "b.bin"}])
@pytest.mark.parametrize(
    "part",
    [
        image_part(),
        {"type": "image_url", "image_url": f"data:image/png;base64,{ENCODED}"},
        {"type": "video_url", "video_url": {"url": ENCODED}},
        audio_part(),
        {"type": "file", "file": {"file_data": ENCODED}},
        {"type": "input_file", "file_data": ENCODED},
        mcp_block(),
        resource_block(PNG, "image/png", "file:///tmp/a.png"),
        anthropic_block(),
        {"inline_data": {"mime_type": "image/png", "data": ENCODED}},
        URL_PART,
    ],
)
def test_a_name_beside_a_content_or_in_its_metadata_is_its_name(part, stated):
    found = attachment_of(part | stated)
    assert found.name == "b.bin"
    assert found.fetched(PNG, "image/png", "c.png").name == "b.bin"
    for inner in ("image_url", "source", "resource", "file", "input_audio"):
        if isinstance(part.get(inner), dict):
            assert attachment_of(part | {inner: part[inner] | stated}).name == "b.bin"


def test_what_is_fetched_is_called_as_it_was_found_when_nobody_states_a_name():
    assert attachment_of(URL_PART).fetched(PNG, "image/png", "c.png").name == "c.png"


@pytest.mark.parametrize(
    ("part", "shape", "address", "name"),
    [
        ({"image_url": {"url": "https://x.org/d/a.png?s=1#f"}}, Shape.IMAGE, "https://x.org/d/a.png?s=1#f", "a.png"),
        ({"image_url": "https://x.org"}, Shape.IMAGE, "https://x.org", "x.org"),
        ({"type": "file", "file": {"file_id": "file-1"}}, Shape.FILE, "file-1", ""),
        ({"type": "input_file", "file_url": "https://x.org/a.pdf"}, Shape.FILE, "https://x.org/a.pdf", ""),
        ({"type": "image", "source": {"type": "url", "url": "https://x.org/a"}}, Shape.BLOCK, "https://x.org/a", ""),
    ],
)
def test_an_address_is_a_content_that_is_elsewhere(part, shape, address, name):
    found = attachment_of(part)
    assert (found.shape, found.address, found.name, found.is_elsewhere) == (shape, address, name, True)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "a"},
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": 7}},
        {"type": "file", "file": {}},
        {"type": "file", "file": None},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
        {"type": "image"},
        {"type": "image", "data": None},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "plain"}},
        {"type": "resource", "resource": "x"},
        {"type": ["image"], "data": "AAAA"},
        {"type": "tool_reference", "data": "AAAA"},
        {},
    ],
)
def test_what_holds_no_media_is_left_alone(part):
    assert attachment_of(part) is None


@given(st.dictionaries(NAMES, ANY_JSON, max_size=5))
def test_no_part_makes_it_raise(part):
    found = attachment_of(part)
    if found is not None:
        found.content()
        found.head(64)


def test_a_data_url_without_base64_has_its_bytes():
    found = attachment_of({"image_url": {"url": "data:image/svg+xml,%3Csvg%2F%3E"}})
    assert (found.content(), found.head(3), found.byte_count) == (b"<svg/>", b"<sv", 6)


def test_a_content_in_other_shapes_has_the_same_bytes():
    assert attachment_of(audio_part(WAV)).content() == WAV
    assert attachment_of(file_part(PDF)).content() == PDF
