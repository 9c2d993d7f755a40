from __future__ import annotations

from support.reading_texts import hits

from proxy.core.artifact_reading.grep_listing import SHOWN_BYTES
from proxy.core.text.lines import PAGE_BYTES


def test_every_window_of_a_long_line_is_a_match_of_its_own():
    line = b"".join(
        b"%06d needle " % number if number % 100 == 0 else b"%06d hay... " % number for number in range(9_000)
    )
    assert len(line) > 100_000
    found = hits(b"first\n" + line * 9 + b"\nlast needle\n", "needle")
    assert found.count == 9 * 90 + 1
    windows = found.text.splitlines()
    assert windows[-1] == b"3:last needle"
    assert all(len(window) < SHOWN_BYTES + 30 and b"needle" in window for window in windows)
    for window in windows[:-1]:
        number, at, shown = window.split(b":", 2)
        assert number == b"2"
        assert (line * 9)[int(at) :].startswith(shown.strip("…".encode()))


def test_a_long_neighbour_is_shortened_and_a_full_page_stops():
    found = hits(b"b" * 2_000 + b"\nneedle\n" + b"c" * 5_000 + b"\nd\n", "needle", context=1)
    assert found.text == b"1-%b\xe2\x80\xa6\n2:needle\n3-%b\xe2\x80\xa6\n" % (b"b" * SHOWN_BYTES, b"c" * SHOWN_BYTES)
    full = hits(b"needle\n" * 20_000, "needle", max_bytes=PAGE_BYTES)
    assert full.count == 1_000
    assert full.following == "1001-20000"
    assert hits(b"needle\n" * 9, "needle", max_bytes=30).following == "4-9"
    early = hits(b"b" * 90 + b"\nneedle\n", "needle", context=1, max_bytes=50)
    assert (early.text, early.count, early.following) == (b"", 0, "2-2")


def test_a_window_begins_with_a_whole_character():
    found = hits(("é漢" * 1_000 + "漢needle").encode() + "漢".encode() * 1_000, "needle")
    number, at, shown = found.text.decode().split(":", 2)
    assert (number, shown[0], shown[-2:]) == ("1", "…", "…\n")
    assert "é漢漢needle漢" in shown
    assert int(at) > 4_000
