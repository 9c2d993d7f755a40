from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import base64_of
from support.media_samples import png as whole_png

from proxy.core.conversation import size_of
from proxy.core.tokens import ByteClassCounter, ImageCounter, image_size, tokens_of_image, with_images_of
from proxy.wire.chat_completions import ChatMessage

TEXTS = ByteClassCounter()


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4o", (1_920, 1_080), 1_105),
        ("some-model", (1_920, 1_080), 1_105),
        ("claude-sonnet-4", (1_000, 1_000), 1_334),
        ("claude-sonnet-4", (1_920, 1_080), 1_600),
        ("claude-sonnet-4", (8_000, 100), 41),
        ("anthropic/claude-3.5-haiku", (200, 200), 54),
        ("gemini-2.0-flash", (300, 300), 1_100),
        ("gemini-2.0-flash", (3_000, 3_000), 4_128),
        ("qwen2.5-vl-72b-instruct", (1_920, 1_080), 69 * 39 + 2),
        ("Qwen/Qwen2-VL-7B-Instruct", (10, 10), 6),
        ("qwen-vl-max", (20_000, 20_000), 16_386),
    ],
)
def test_an_image_costs_what_the_models_maker_says(model, size, tokens):
    assert tokens_of_image(with_images_of(model, TEXTS), size, None) == tokens


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4", "gemini-2.5-pro", "qwen-vl-max"])
def test_an_image_of_unknown_size_costs_what_a_usual_one_does(model):
    assert tokens_of_image(with_images_of(model, TEXTS), None, None) == 765


@given(st.integers(1, 65_535), st.integers(1, 65_535), st.sampled_from(["claude-x", "gemini-x", "qwen-x", "gpt-x"]))
def test_every_image_costs_something_and_not_more_than_the_window_of_a_small_model(width, height, model):
    assert 0 < tokens_of_image(with_images_of(model, TEXTS), (width, height), None) < 2_000_000


def test_texts_are_counted_as_before_and_images_of_messages_by_the_rule():
    counter = with_images_of("qwen-vl-max", TEXTS)
    assert isinstance(counter, ImageCounter)
    assert (counter.name, counter.exact, counter.count("def parse(line):")) == ("bytes", False, 5)
    assert with_images_of("gpt-4o", TEXTS) is TEXTS
    url = {"url": f"data:image/png;base64,{base64_of(whole_png(560, 280))}"}
    message = ChatMessage.read(
        json.dumps({"role": "user", "content": [{"type": "image_url", "image_url": url}]}).encode()
    )
    assert size_of(message, counter).tokens == 4 + 20 * 10 + 2


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [  # the first three: the examples of OpenAI's guide
        ((1024, 1024), "high", 765),
        ((2048, 4096), "high", 1105),
        ((4096, 8192), "low", 85),
        ((512, 512), None, 255),
        ((513, 512), "auto", 425),
        ((1, 1), None, 255),
        ((65_535, 1), None, 765),
        (None, None, 765),
        (None, "low", 85),
        ((-4, 512), "high", 765),
        ((0, 0), "low", 85),
    ],
)
def test_an_image_costs_its_tiles(size, detail, tokens):
    assert tokens_of_image(TEXTS, size, detail) == tokens


@given(st.integers(1, 65_535), st.integers(1, 65_535))
def test_an_image_costs_the_same_turned_and_never_more_than_eight_tiles(width, height):
    tokens = tokens_of_image(TEXTS, (width, height), None)
    assert tokens == tokens_of_image(TEXTS, (height, width), None)
    assert 255 <= tokens <= 85 + 170 * 8


SIDES = st.integers(1, 16_383)  # what the narrowest of the formats, VP8, can say


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\0\0"


def bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<Iii", 40, width, -height)


def os2_bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<IHH", 12, width, height)


def vp8(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\x10\x02\0\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height)


def vp8l(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", width - 1 | (height - 1) << 14 | 1 << 28)


def vp8x(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x10\0\0\0" + sides


def jpeg(width: int, height: int, *, exif_bytes: int = 300) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", exif_bytes + 2) + b"\xff\xc0" * (exif_bytes // 2)
    tables = b"\xff\xff\xdb\0\x05\x01\x02\x03" + b"\xff\xc4\0\x04\0\0"
    return b"\xff\xd8" + exif + tables + b"\xff\xc2\0\x11\x08" + struct.pack(">HH", height, width) + b"\x03"


FORMATS = [png, gif, bmp, os2_bmp, vp8, vp8l, vp8x, jpeg]


@pytest.mark.parametrize("file", FORMATS)
@given(width=SIDES, height=SIDES)
def test_the_size_is_what_the_header_says(file, width, height):
    assert image_size(file(width, height)) == (width, height)


@pytest.mark.parametrize("file", FORMATS)
def test_a_header_that_is_cut_off_has_no_size(file):
    whole = file(640, 480)
    sizes = {image_size(whole[:length]) for length in range(len(whole))}
    assert sizes <= {None, (640, 480)}
    assert image_size(whole[:18]) is None or file is gif


@pytest.mark.parametrize("file", [png, gif, bmp, os2_bmp, jpeg])
def test_no_width_or_no_height_is_no_size(file):
    assert image_size(file(0, 10)) is None
    assert image_size(file(10, 0)) is None


@pytest.mark.parametrize("side", [65_536, 2**31 - 1, 2**32 - 1])
def test_an_absurd_side_is_returned_for_callers_that_bound_pixels(side):
    assert image_size(png(side, side)) == (side, side)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"%PDF-1.7 and more of it", b"RIFF\0\0\0\0WAVEfmt ", b"BM" + bytes(40)),
        bmp(-5, 5),
        b"\xff\xd8\xff\xda\0\x02" + jpeg(640, 480)[2:],  # a scan before the frame
        b"\xff\xd8\xff\xe0\0\x02garbage" * 4,
        b"\xff\xd8" + b"\xff\xe0\0\0" * 50_000,  # segments of no length
        *(b"RIFF\0\0\0\0WEBP" + kind + bytes(40) for kind in (b"VP8 ", b"VP8L", b"VP8Z")),
    ],
)
def test_what_is_no_known_image_or_a_broken_one_has_no_size(content):
    assert image_size(content) is None


def test_lone_markers_are_skipped():
    assert image_size(b"\xff\xd8\xff\x01\xff\xd0" + jpeg(640, 480)[2:]) == (640, 480)


@given(
    st.sampled_from([b"", b"\xff\xd8\xff", b"BM", b"GIF87a", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8"]), st.binary()
)
def test_nothing_raises(start, rest):
    size = image_size(start + rest)
    assert size is None or all(0 < side < 2**32 for side in size)


def heif(*sizes, brand=b"avif"):
    extents = b"".join(b"\0\0\0\x14ispe\0\0\0\0" + struct.pack(">II", *size) for size in sizes)
    return b"\0\0\0\x1cftyp" + brand + b"\0\0\0\0mif1miaf\0\0\0\x99meta" + extents


def test_an_image_of_tiles_is_as_large_as_the_whole():
    assert image_size(heif((512, 512), (4032, 3024), (160, 120), brand=b"heic")) == (4032, 3024)
    assert image_size(heif((64, 48))) == (64, 48)
    assert image_size(heif()) is None
    assert image_size(heif((64, 48))[:-3]) is None
