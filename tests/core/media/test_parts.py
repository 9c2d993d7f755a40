from __future__ import annotations

import base64

import pytest

from proxy.core.content_types import media_type
from proxy.core.media.parts import part_of, without_addresses
from proxy.core.media.routes import Route

PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00"


@pytest.mark.parametrize("route", [Route.FILE, Route.IMAGE, Route.AUDIO])
def test_what_an_old_part_says_besides_its_content_goes_into_the_new_one(route):
    old = {route.value: {"detail": "low", "filename": "mine.bin", "url": "old", "file_data": "old", "data": "old"}}
    inner = part_of(route, PDF, media_type(PDF), "theirs.pdf", old)[route.value]
    assert (inner["detail"], inner["filename"]) == ("low", "mine.bin")
    encoded = base64.b64encode(PDF).decode()
    written = {Route.FILE: "file_data", Route.IMAGE: "url", Route.AUDIO: "data"}[route]
    assert inner[written].endswith(encoded)


def test_a_file_without_a_name_gets_one_and_a_sound_its_format():
    assert part_of(Route.FILE, PDF, media_type(PDF), "", {})["file"]["filename"].endswith(".pdf")
    assert part_of(Route.AUDIO, WAV, media_type(WAV), "", {})["input_audio"]["format"] == "wav"


def test_an_odd_inside_counts_as_none():
    assert part_of(Route.IMAGE, PDF, media_type(PDF), "", {"image_url": "text"})["image_url"].keys() == {"url"}
    assert without_addresses("text") == {}
    assert without_addresses({"url": "u", "detail": "high"}) == {"detail": "high"}
