from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.content_types import ContentKind, MediaType, known
from proxy.core.notices.catalogue import TYPES
from proxy.core.notices.media import friendly_size, friendly_type

OOXML = "application/vnd.openxmlformats-officedocument."


@pytest.mark.parametrize(
    ("mime", "en", "zh"),
    [
        ("application/pdf", "PDF document", "PDF 文档"),
        ("image/png", "PNG image", "PNG 图片"),
        ("audio/mpeg", "MP3 audio", "MP3 音频"),
        ("image/jpeg", "JPEG image", "JPEG 图片"),
        ("audio/wav", "WAV audio", "WAV 音频"),
        ("video/mp4", "MP4 video", "MP4 视频"),
        ("text/csv", "CSV table", "CSV 表格"),
        ("application/msword", "Word document (97-2003)", "Word 文档（97-2003）"),
        ("application/vnd.ms-excel", "Excel spreadsheet (97-2003)", "Excel 表格（97-2003）"),
        ("application/vnd.ms-powerpoint", "PowerPoint presentation (97-2003)", "PowerPoint 演示（97-2003）"),
        (f"{OOXML}wordprocessingml.document", "Word document", "Word 文档"),
        (f"{OOXML}spreadsheetml.sheet", "Excel spreadsheet", "Excel 表格"),
        (f"{OOXML}presentationml.presentation", "PowerPoint presentation", "PowerPoint 演示"),
        ("application/zip", "ZIP archive", "ZIP 压缩包"),
        ("application/octet-stream", "binary file", "二进制文件"),
    ],
)
def test_a_type_is_called_what_people_call_it(mime, en, zh):
    line = known(mime)
    assert friendly_type(line, "en") == en
    assert friendly_type(line, "zh") == zh


@pytest.mark.parametrize("kind", ContentKind)
def test_a_type_without_a_name_is_called_by_its_kind(kind):
    unheard = MediaType("x/y", kind, "bin")
    assert friendly_type(unheard, "en") != friendly_type(unheard, "zh")


def test_every_name_is_of_a_known_type():
    assert [mime for mime in TYPES if known(mime) is None] == []


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1 KB"),
        (1_449, "1.4 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1 MB"),
        (2_500_000, "2.5 MB"),
        (50_000_000, "50 MB"),
        (12_345_678_901, "12.3 GB"),
        (5_000_000_000_000, "5,000 GB"),
    ],
)
def test_a_size_is_what_people_read(count, said):
    assert friendly_size(count) == said


@given(st.integers(0, 10**15))
def test_a_size_is_short_and_has_a_unit(count):
    for language in ("en", "zh"):
        assert re.fullmatch(r"[\d,]+(\.\d)? (bytes?|字节|KB|MB|GB)", friendly_size(count, language))
