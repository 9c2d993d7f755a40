from __future__ import annotations

import json

import pytest
from support.media_samples import PDF, PNG, WAV, base64_of, data_url

from proxy.core.content_types import media_type
from proxy.core.conversation.message import Attachment, Route, Shape, Shown
from proxy.wire.responses.media_parts import content_of, part_of, rest_of

URL = "https://example.org/a.png"


def made(route, content=PNG, old=None, name="", address=""):
    like = None if old is None else json.dumps(old).encode()
    return part_of(Shown(route, media_type(content or b""), content, address, name, like))


def test_an_image_that_only_its_server_has_is_known_by_its_id():
    assert content_of({"type": "input_image", "file_id": "file_1"}) == Attachment(Shape.IMAGE, address="file_1")
    assert content_of({"type": "input_image", "image_url": None, "file_id": ""}) is None
    assert content_of({"type": "input_image", "file_id": 7}) is None


def test_what_stands_in_a_part_is_its_content():
    found = content_of({"type": "input_image", "image_url": data_url(PNG, "image/png"), "file_id": "file_1"})
    assert (found.shape, found.content(), found.address) == (Shape.IMAGE, PNG, "")
    assert content_of({"type": "input_file", "filename": "a", "file_data": base64_of(PDF)}).name == "a"
    assert content_of({"type": "input_text", "text": "hi"}) is None


def test_content_stands_in_the_part_itself():
    assert made(Route.IMAGE) == {"type": "input_image", "detail": "auto", "image_url": data_url(PNG, "image/png")}
    assert made(Route.FILE, PDF, name="a.pdf") == {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": data_url(PDF, "application/pdf"),
    }
    assert made(Route.AUDIO, WAV) == {
        "type": "input_audio",
        "input_audio": {"data": base64_of(WAV), "format": "wav"},
    }


@pytest.mark.parametrize(("route", "member"), [(Route.AUDIO_ADDRESS, "audio_url"), (Route.VIDEO, "video_url")])
def test_what_the_api_has_no_part_for_stands_as_on_chat_completions(route, member):
    assert made(route, None, address=URL) == {"type": member, member: {"url": URL}}


def test_what_is_not_here_is_shown_by_its_address():
    assert made(Route.IMAGE, None, address=URL)["image_url"] == URL


def test_what_the_old_part_says_of_its_content_goes_into_the_new_one_and_its_content_does_not():
    old = {"type": "input_image", "detail": "low", "image_url": "old", "file_id": "f", "x": 1, "empty": None}
    assert made(Route.IMAGE, old=old) == {
        "type": "input_image",
        "detail": "low",
        "x": 1,
        "image_url": data_url(PNG, "image/png"),
    }
    old = {"type": "input_file", "filename": "theirs.pdf", "file_url": URL, "file_data": "old"}
    assert made(Route.FILE, PDF, old, name="ours.pdf") == {
        "type": "input_file",
        "filename": "theirs.pdf",
        "file_data": data_url(PDF, "application/pdf"),
    }


@pytest.mark.parametrize("old", [{"type": "input_file", "x": 1}, {"type": "image_url", "x": 1}, ["x"], "x"])
def test_an_old_part_of_another_kind_leaves_nothing(old):
    assert made(Route.IMAGE, old=old) == made(Route.IMAGE)


def test_the_rest_of_a_part_has_all_but_the_content_in_the_same_order():
    part = {"type": "input_file", "file_data": "A" * 5_000, "filename": "a" * 1_000, "n": 7}
    assert rest_of(part) == b'{"type":"input_file","file_data":"","filename":"%b","n":7}' % (b"a" * 1_000)
