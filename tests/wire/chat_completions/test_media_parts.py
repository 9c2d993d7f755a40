from __future__ import annotations

import json

import pytest
from support.media_samples import PDF, WAV

from proxy.core.content_types import media_type
from proxy.core.conversation.message import Route, Shown
from proxy.wire.chat_completions.media_parts import part_of, rest_of

MEMBERS = {
    Route.IMAGE: "image_url",
    Route.AUDIO: "input_audio",
    Route.AUDIO_ADDRESS: "audio_url",
    Route.VIDEO: "video_url",
    Route.FILE: "file",
}


def made(route, content=PDF, name="", old=None, **more):
    """The part, and the member that holds its content."""
    like = None if old is None else json.dumps(old).encode()
    part = part_of(Shown(route, media_type(content), content, "", name, like, **more))
    assert part.keys() == {"type", MEMBERS[route]}
    assert part["type"] == MEMBERS[route]
    return part[MEMBERS[route]]


@pytest.mark.parametrize("route", MEMBERS)
def test_what_the_old_part_says_of_its_content_stays(route):
    member = MEMBERS[route]
    assert made(route, name="theirs.pdf", old={"type": member, member: {"detail": "low", "x": 1}}) | {
        "detail": "low",
        "x": 1,
    } == made(route, name="theirs.pdf", old={"type": member, member: {"detail": "low", "x": 1}})


def test_a_file_has_its_name_and_raw_audio_its_format():
    assert made(Route.FILE, name="a.pdf")["filename"] == "a.pdf"
    assert made(Route.AUDIO, WAV)["format"] == "wav"


def test_an_old_part_of_an_odd_type_leaves_nothing():
    assert made(Route.IMAGE, old={"image_url": "text"}).keys() == {"url"}


def test_an_address_that_no_longer_holds_goes_and_what_stands_beside_it_stays():
    old = {"image_url": {"url": "https://example.org/a.png", "file_id": "7", "detail": "high"}}
    assert made(Route.IMAGE, old=old, is_fetched=True).keys() == {"url", "detail"}
    assert made(Route.IMAGE, old=old)["file_id"] == "7"


def test_what_is_not_here_is_shown_by_its_address():
    shown = Shown(Route.IMAGE, media_type(b""), address="https://example.org/a.png")
    assert part_of(shown) == {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def test_the_rest_of_a_part_has_all_but_the_content_in_the_same_order():
    part = {"type": "image_url", "image_url": {"url": "data:" + "A" * 5_000, "detail": "low"}, "b64": "A" * 5_000}
    assert rest_of(part) == b'{"type":"image_url","image_url":{"url":"","detail":"low"},"b64":""}'
