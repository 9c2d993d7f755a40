from __future__ import annotations

import pytest
from support.made_files import (
    ODF,
    ole,
    stated,
    zipped,
)

from proxy.core.content_types import (
    media_type,
)


@pytest.mark.parametrize("hostile", ["sectors", "power", "no power", "cut", "far"])
def test_a_broken_ole_container_is_one_all_the_same(hostile):
    content = bytearray(ole("WordDocument"))
    if hostile == "sectors":
        content[512 + 4 : 512 + 8] = b"\x01\0\0\0"  # the directory goes on with itself
    elif hostile == "power":
        content[30:32] = b"\xff\xff"
    elif hostile == "no power":
        content[30:32] = b"\0\0"
    elif hostile == "far":
        content[512 + 4 : 512 + 8] = b"\xff\xff\xff\x7f"
    elif hostile == "cut":
        del content[60:]
    assert media_type(bytes(content)).mime == "application/x-ole-storage"


def test_an_archive_of_very_many_files_is_one():
    names = [f"{number}.txt" for number in range(1_500)]
    assert media_type(zipped(*names)).mime == "application/zip"
    assert media_type(zipped(*names)[:-50_000]).mime == "application/zip"


def test_a_document_may_say_that_it_is_something_else():
    assert media_type(stated(f"{ODF}text") + bytes(5)).mime == f"{ODF}text"
    assert media_type(stated("application/x-unheard-of")).mime == "application/zip"
