from __future__ import annotations

import base64
import random
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.made_files import FILES, PDF, PDF_OF_LETTERS, jpeg, png

from proxy.core.content_types import (
    ContentKind,
    data_url,
    decoded,
    is_address,
    looks_decoded_by_force,
    media_type,
    text_of,
)

SCRIPTS = {
    "English": "The request was refused because the server was restarting at that moment.\n",
    "French": "L’été dernier, à Besançon, le maître a été très naïf : « ça va ».\n",
    "German": "Die Größe der Übertragung überschreitet das zulässige Maß.\n",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy.\n",
    "Vietnamese": "Không thể mở tệp vì đường dẫn không hợp lệ.\n",
    "Russian": "Не удалось открыть файл: проверьте путь и права доступа.\n",
    "Greek": "Δεν ήταν δυνατό το άνοιγμα του αρχείου.\n",
    "Hebrew": "\u200fלא ניתן לפתוח את הקובץ\u200f — בדקו את הנתיב.\n",
    "Arabic": "\u202bتعذر فتح الملف، يرجى التحقق من المسار.\u202c\n",
    "Persian": "فایل باز نمی\u200cشود؛ مسیر را بررسی کنید.\n",
    "Hindi": "फ़ाइल नहीं खोली जा सकी, कृपया पथ जाँचें।\n",
    "Tamil": "கோப்பைத் திறக்க முடியவில்லை.\n",
    "Thai": "ไม่สามารถเปิดไฟล์ได้ โปรดตรวจสอบเส้นทาง\n",
    "Burmese": "ဖိုင်ကို ဖွင့်၍ မရပါ။\n",
    "Amharic": "ፋይሉን መክፈት አልተቻለም።\n",
    "Georgian": "ფაილის გახსნა ვერ მოხერხდა.\n",
    "Chinese": "无法打开文件，请检查路径和权限。\n",
    "Japanese": "ファイルを開けませんでした。パスを確認してください。\n",
    "Korean": "파일을 열 수 없습니다. 경로를 확인하십시오.\n",
    "Gothic": "𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂 𐌸𐌿 𐌹𐌽 𐌷𐌹𐌼𐌹𐌽𐌰𐌼\n",
    "emoji": "✅ 12 passed 👩‍👩‍👧‍👦 🇨🇭 ❌ 1 failed\n",
    "boxes": "┌──┬──┐\n│ a│ b│\n╰──┴──╯ ▁▂▃▄▅▆▇█ ⠋⠙⠹⠸\n",
    "private use": "\ue0b0 main \ue0b2 \uf418 powerline\n",
    "marks": "e\u0301\u0302\u0303\u0304 o\u0335\u0336\u0337 zalgo\n",
}
OF_TERMINALS = {
    "colours": "\x1b[1;31mERROR\x1b[0m \x1b[38;5;208mat\x1b[0m \x1b]8;;http://h\x07line\x1b]8;;\x07\n" * 50,
    "progress": "".join(f"\r{n:3d}% [{'#' * (n // 5):20}]" for n in range(100)) + "\x07\n",
    "overstrike": "".join(f"{letter}\b{letter}" for letter in "NAME ls - list directory contents ") * 10,
    "pages": "one\ttwo\x0cthree\x0bfour\n" * 40,
    "a line with NUL": "10:00 ok\n" * 50 + "10:01 \0\0\0\0\n",
    "padded lines": "abc\0\0\0\0 value\n" * 50,
    "names parted by NUL": "".join(f"src/file_{n}.py\0" for n in range(200)),
    "short names parted by NUL": "a\0b\0c\0d\0" * 100,
    "frames of a container's log": "\x01\0\0\0\0\0\0\x1dserver started on port 8000\n" * 60,
    "a few replaced": "caf\ufffd au lait, na\ufffdve\n" * 40,
    "only replaced": "\ufffd" * 400,
    "one replaced": "\ufffd",
    "control codes": "\0\x01\x02\x03",
    "half of a pair": "\ud83d plain \udc00 words\n" * 20,
    "about formats": "PNG and GIF89a are formats; %PDF-1.4 is how a PDF begins, ID3 an MP3; PK stands for Phil Katz.\n",
}
ENCODINGS = [
    ("Chinese", "gb18030"),
    ("Chinese", "big5hkscs"),
    ("Japanese", "shift_jis"),
    ("Japanese", "euc_jp"),
    ("Korean", "euc_kr"),
    ("Russian", "cp1251"),
    ("Russian", "koi8_r"),
    ("French", "cp1252"),
    ("German", "latin-1"),
    ("Czech", "cp1250"),
    ("Greek", "cp1253"),
    ("Hebrew", "cp1255"),
    ("Thai", "cp874"),
    ("English", "utf-16-le"),
    ("English", "utf-16"),
    ("English", "utf-16-be"),
]
NOISE = random.Random(7).randbytes(100_000)
"""Contents like those of compressed and encoded files."""
BINARY = [
    name
    for name, (_, content) in FILES.items()
    if media_type(content).kind not in (ContentKind.TEXT, ContentKind.OTHER)
]
LETTERS_ONLY = {"svg", "svg_declared", "rtf", "ps"}


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
@example("BM is a company, and GIF a format")
@example("The free software")
@example("ID3 tags are old")
@example("%PDF-1.4 is the header of a PDF file, startxref stands at its end\nstartxref\n%%EOF")
@example("MZ " * 40)
@example("G" * 4_000)
@example("PK, OggS, RIFF, fLaC, wOFF, FORM")
@example("II * MM")
def test_text_is_text(text):
    found = media_type(text.encode())
    assert (
        found.kind in (ContentKind.TEXT, ContentKind.IMAGE)
        if text.lstrip().startswith("<")
        else not text or found.kind is ContentKind.TEXT
    )


def test_a_text_of_endless_comments_is_one():
    assert media_type(b"<!-- a -->" * 500 + b"<svg/>").kind is ContentKind.TEXT


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("before", range(8))
def test_a_long_text_may_be_cut_within_any_character(before, encoding):
    text = "a" * before + "中é🙂" * 30_000
    assert media_type(text.encode(encoding)).mime == "text/plain"


@pytest.mark.parametrize("name", ["utf-16-be", "utf-32-be"])
def test_a_text_may_be_big_endian(name):
    assert media_type("\ufeffnaïve 中文".encode(name)).mime == "text/plain"


def test_a_text_that_ends_in_controls_is_none():
    assert media_type(b"a" * 100_000 + b"\x01\x02" * 5_000).kind is ContentKind.OTHER


@pytest.mark.parametrize("at", [0, 70_000, 139_999])
def test_a_long_text_with_a_byte_that_is_none_is_none_when_it_is_seen(at):
    content = bytearray(b"a" * 140_000)
    content[at] = 0xFF
    assert media_type(bytes(content)).kind is (ContentKind.TEXT if at == 70_000 else ContentKind.OTHER)


@pytest.mark.parametrize("endian", ["utf-8", "utf-16", "utf-32", "utf-8-sig"])
def test_a_text_can_be_had(endian):
    assert text_of("naïve 中文".encode(endian)) == "naïve 中文"
    assert text_of(b"\xff\xfe\xff") is None


@pytest.mark.parametrize("times", [1, 30, 3_000])
@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_no_language_is_taken_for_a_file(text, times):
    assert not looks_decoded_by_force(text * times)


@pytest.mark.parametrize("text", OF_TERMINALS.values(), ids=OF_TERMINALS)
def test_what_terminals_and_careless_programs_write_is_text(text):
    assert not looks_decoded_by_force(text)


@pytest.mark.parametrize(("language", "encoding"), ENCODINGS)
def test_a_text_that_was_read_in_a_wrong_encoding_stays(language, encoding):
    encoded = (SCRIPTS[language].replace("’", "'") * 20).encode(encoding, "ignore")
    assert not looks_decoded_by_force(encoded.decode("utf-8", "replace"))


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffd")))
def test_no_text_without_controls_is_taken_for_a_file(text):
    assert not looks_decoded_by_force(text * 20)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(min_size=1))
def test_a_stray_control_character_or_two_makes_no_file_of_a_text(text, line):
    assert not looks_decoded_by_force(f"{'a plain line of a log' * 40}\n{text[:8]}\0\ufffd\n{line[:8]}")


@pytest.mark.parametrize(
    "start", ["png", "jpg", "gif", "webp", "bmp", "avif", "heic", "tiff", "jp2", "psd", "docx", "epub"]
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_an_image_or_an_archive_is_known_by_its_head_and_by_its_inside(start, encoding):
    head = FILES[start][1][:40]
    assert looks_decoded_by_force((head + NOISE).decode(encoding, "replace"))


@pytest.mark.parametrize("name", sorted(set(BINARY) - LETTERS_ONLY))
def test_a_decoded_file_is_known_by_its_inside(name):
    assert looks_decoded_by_force((FILES[name][1][:100] + NOISE[:20_000]).decode("utf-8", "replace"))


HEADS = (
    "png jpg gif pdf pdf_letters mp3_id3 wav docx doc elf gz xz bz2 7z rar mkv mp4 opus flac sqlite wma psd jp2 tiff"
)


@pytest.mark.parametrize("name", HEADS.split())
def test_the_beginning_of_a_decoded_file_is_enough_to_know_it(name):
    assert looks_decoded_by_force(FILES[name][1][:400].decode("utf-8", "replace"))


@given(st.integers(0, 2**32), st.integers(200, 100_000))
def test_random_bytes_that_were_decoded_are_no_text(seed, length):
    assert looks_decoded_by_force(random.Random(seed).randbytes(length).decode("utf-8", "replace"))


def test_a_long_decoded_file_is_judged_by_parts_of_it():
    noise = NOISE.decode("utf-8", "replace")
    assert looks_decoded_by_force("Content of report.bin:\n" + noise * 20)
    assert not looks_decoded_by_force("a line of text\n" * 100_000 + noise[:400])


def test_a_text_of_zero_characters_is_no_text():
    assert looks_decoded_by_force("\0" * 1_000)
    assert looks_decoded_by_force("\x01\x02\0\x04" * 1_000)


def test_a_pdf_of_letters_only_is_a_file_and_a_page_about_pdf_is_not():
    assert looks_decoded_by_force(PDF_OF_LETTERS.decode())
    assert looks_decoded_by_force(PDF.decode("utf-8", "replace"))
    assert not looks_decoded_by_force("How a PDF is made\n\n" + PDF_OF_LETTERS.decode())


def test_an_empty_or_very_short_text_is_never_taken_for_a_file():
    assert not looks_decoded_by_force("")
    assert not looks_decoded_by_force("ok")
    assert looks_decoded_by_force(png().decode("utf-8", "replace")[:12])
    assert looks_decoded_by_force(jpeg().decode("utf-8", "replace")[:12])


@given(st.binary(max_size=200))
def test_whatever_was_encoded_comes_back_however_it_was_written(content):
    plain = base64.b64encode(content).decode()
    lines = "\r\n".join(plain[at : at + 76] for at in range(0, len(plain), 76))
    percent = plain.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    for written in (
        plain,
        plain.rstrip("="),
        base64.urlsafe_b64encode(content).decode(),
        lines,
        f" {plain}\n",
        percent,
    ):
        assert decoded(written) == content


@given(st.text())
def test_any_text_is_base64_or_is_not(text):
    content = decoded(text)
    assert content is None or set("".join(text.split())) <= set(string.printable)


@pytest.mark.parametrize("broken", ["A", "AAAAA", "AA=A", "iVBOR…", "a b!c", "é", "=A", "\ud800", "AA\0A"])
def test_broken_base64_is_none(broken):
    assert decoded(broken) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("data:image/png;base64,AAAA", ("image/png", "AAAA", True)),
        ("DATA:;BASE64,", ("", "", True)),
        ("data:,a%20b", ("", "a%20b", False)),
        ("data:image/svg+xml;utf8,<svg>,", ("image/svg+xml", "<svg>,", False)),
        ("data:image/png;base64", None),
        ("data:" + "x" * 2_000 + ",", None),
        ("iVBORw0KGgo=", None),
        ("", None),
    ],
)
def test_a_data_url_has_a_type_and_a_payload(text, found):
    assert data_url(text) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.org/a", True),
        ("gs://bucket/a", True),
        ("artifact:tool_x", True),
        ("data:image/png;base64,AA", False),
        ("DATA:,x", False),
        ("iVBORw0KGgo=", False),
        ("/9j/4AAQ", False),
        ("", False),
    ],
)
def test_an_address_has_a_scheme(text, expected):
    assert is_address(text) is expected
