from __future__ import annotations

from support.made_files import (
    box,
    film,
)

from proxy.core.content_types import (
    media_type,
)


def test_a_film_of_endless_boxes_is_given_up():
    endless = box(b"ftyp", b"isom", bytes(4)) + box(b"moov", *(box(b"trak", box(b"mdia")) for _ in range(5_000)))
    assert media_type(endless).mime == "video/mp4"
    assert media_type(film(b"isom", *[b"soun"] * 40)).mime == "audio/mp4"
    assert media_type(box(b"ftyp", b"isom", bytes(4)) + b"\0\0\0\0moov" + film(b"x", b"soun")).mime == "video/mp4"
