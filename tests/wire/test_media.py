from __future__ import annotations

import base64
import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_bytes import spelled
from support.media_samples import (
    CSV,
    JPEG,
    MP4,
    PDF,
    PNG,
    WAV,
    ZIP,
    anthropic_block,
    audio_part,
    base64_of,
    data_url,
    file_part,
    image_part,
    mcp_block,
    resource_block,
    routing_result,
)

from proxy.core.artifact import Artifact
from proxy.core.conversation import Replacement, Shape
from proxy.core.text import jsontext
from proxy.wire.chat_completions import ChatMessage

STANDS = "<content>"
ENCODED = base64_of(PNG)
MIN_CHARACTERS = 64
"""Shortest base64 in a text that is not declared as a file."""
with_replaced = ChatMessage(b"{}").with_replaced


def attachment_of(part):
    return ChatMessage.read_part(json.dumps(part).encode(), part).attachment


def may_hold_media(message):
    return ChatMessage.read(message).may_hold_media


def addresses_in(content, *, is_result):
    role = "tool" if is_result else "user"
    return ChatMessage.read(json.dumps({"role": role, "content": content}).encode()).addresses()


def replaced(text, words=STANDS, *, is_shown=False):
    """The text with words in the place of contents, and these."""
    found = []

    def replace(attachment):
        found.append(attachment)
        return None if words is None else Replacement(words, is_shown)

    return with_replaced(text, replace), found


@pytest.mark.parametrize("content", [PNG, JPEG, PDF, ZIP, WAV, MP4], ids=["png", "jpeg", "pdf", "zip", "wav", "mp4"])
@pytest.mark.parametrize(
    "frame",
    [
        "{}",
        "here: {} and on",
        '{{"image":"{}"}}',
        "{{'image': '{}'}}",
        '["a","{}"]',
        '{{"broken json": "{}",',
        "{}\nline",
        "a=1\nkey: {}\n",
        '"{}"',
    ],
)
def test_base64_of_a_known_type_is_found_anywhere(content, frame):
    text = frame.format(base64_of(content))
    after, found = replaced(text)
    assert [attachment.content() for attachment in found] == [content]
    assert after == frame.format(STANDS)
    assert may_hold_media(json.dumps({"role": "tool", "content": text}).encode())


@pytest.mark.parametrize("declared", ["image/png", "image/svg+xml", "", "image/png;charset=utf-8"])
def test_a_data_uri_is_found_in_prose(declared):
    text = f"![a]({data_url(PNG, declared)}) and url('{data_url(WAV, 'audio/wav')}')"
    after, found = replaced(text)
    assert after == f"![a]({STANDS}) and url('{STANDS}')"
    assert [attachment.content() for attachment in found] == [PNG, WAV]
    assert found[0].declared == declared.partition(";")[0]


@pytest.mark.parametrize("width", [64, 76])
def test_base64_in_lines_is_one_content(width):
    encoded = base64_of(PNG * 5)
    lines = "\n".join(encoded[at : at + width] for at in range(0, len(encoded), width))
    after, found = replaced(f"$ base64 a.png\n{lines}\n$ ls\n")
    assert [attachment.content() for attachment in found] == [PNG * 5]
    assert after == f"$ base64 a.png\n{STANDS}\n$ ls\n"


@pytest.mark.parametrize(
    "block",
    [
        mcp_block(),
        anthropic_block(),
        image_part(),
        resource_block(PNG, "image/png", "file:///a.png"),
        {"type": "image", "data": base64_of(b"unknown bytes \x00\x01" * 5), "mimeType": "image/x-rare"},
    ],
)
def test_a_block_in_json_becomes_a_block_of_text(block):
    text = json.dumps({"content": [{"type": "text", "text": "hi"}, block], "n": 1.0})
    after, found = replaced(text)
    assert json.loads(after) == {
        "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": STANDS}],
        "n": 1.0,
    }
    assert '"n":1.0' in after
    assert len(found) == 1
    assert not found[0].is_part


DECLARING = {
    "data URI": lambda file: f"![a]({data_url(file, 'image/png')}) and on",
    "data URI at the end": lambda file: f"see {data_url(file, 'application/pdf')}.",
    "data URI in JSON": lambda file: json.dumps({"url": data_url(file, "audio/wav")}),
    "data URI of an odd type": lambda file: f'<img src="{data_url(file, "image/x-odd;a=b")}">',
    "MCP": lambda file: json.dumps([mcp_block(file)]),
    "MCP audio": lambda file: json.dumps({"content": [mcp_block(file, "audio/wav", "audio")]}),
    "resource": lambda file: json.dumps(resource_block(file, "application/zip", "file:///a")),
    "resource of text": lambda file: json.dumps(resource_block(file, "text/plain", "file:///a")),
    "Anthropic": lambda file: json.dumps({"content": [anthropic_block(file)]}),
    "audio part": lambda file: json.dumps([audio_part(file)]),
    "file part": lambda file: json.dumps(
        [{"type": "file", "file": {"file_data": base64_of(file), "filename": "a.pdf"}}]
    ),
    "file_data": lambda file: json.dumps({"file_data": base64_of(file), "filename": "a.pdf"}),
    "declared member": lambda file: json.dumps({"mime_type": "application/octet-stream", "data": base64_of(file)}),
    "member declared in metadata": lambda file: json.dumps(
        {"blob": base64_of(file), "metadata": {"contentType": "image/png"}}
    ),
    "JSON in JSON": lambda file: json.dumps({"text": json.dumps({"mimeType": "image/gif", "base64": base64_of(file)})}),
    "structured image": lambda file: json.dumps({"routing": "image_url", "imageUrl": data_url(file, "image/png")}),
    "structured file": lambda file: json.dumps(
        {
            "routing": "file",
            "content": base64_of(file),
            "metadata": {"mimeType": "application/pdf", "encoding": "base64"},
        }
    ),
}


@pytest.mark.parametrize("frame", DECLARING)
@given(st.one_of(st.binary(min_size=1, max_size=60), st.sampled_from([PNG[:n] for n in range(1, 60)])))
def test_a_declared_content_of_any_length_is_found(frame, file):
    text = DECLARING[frame](file)
    after, found = replaced(text)
    assert [attachment.content() for attachment in found] == [file]
    assert after.count(STANDS) == 1
    assert not re.search(rf"(?<![A-Za-z0-9+/]){re.escape(base64_of(file))}", after)
    assert may_hold_media(json.dumps({"role": "tool", "content": text}).encode())
    assert may_hold_media(json.dumps({"role": "tool", "content": [{"type": "text", "text": text}]}).encode())


@pytest.mark.parametrize(
    "text",
    [
        'url = f"data:image/png;base64,{encoded}"',
        "data:image/png;base64,iVBORw0KGgo... is cut in this manual",
        "data:image/png;base64,iVBORw0KGgo… is cut in this manual",
        "`data:image/png;base64,${image}` and data:image/png;base64,%s",
        "data:image/jpeg;base64,YOUR_IMAGE_HERE",
        "data:image/png;base64,<DATA>",
        "data:image/png;base64,AAAA[...]",
        "data:text/plain;base64,aGVsbG8=",
        "data:;base64,aGVsbG8=",
        "data:application/json;base64,e30=",
        json.dumps({"data": "done", "name": "cats", "type": "image"}),
        json.dumps({"mimeType": "image/png", "name": "cats", "id": "AAAA"}),
        json.dumps({"contentType": "image/png", "body": "done", "content": "OK", "file": "SCAN"}),
        json.dumps({"contentType": "image/png", "body": "not found", "data": ""}),
        json.dumps({"contentType": "application/json", "body": "true", "data": "null"}),
        json.dumps({"content_type": "application/x-www-form-urlencoded", "data": "abcd"}),
        json.dumps({"format": "date", "data": "2024"}),
        json.dumps({"filename": "a.pdf", "data": "done"}),
    ],
)
def test_a_short_text_not_declared_as_binary_stays(text):
    assert replaced(text) == (text, [])


@pytest.mark.parametrize(
    "found",
    [
        {"filename": "a.pdf", "blob": base64_of(PDF)},
        {"metadata": {"filename": "a.pdf"}, "data": {"deep": base64_of(PDF)}},
        {"filename": "a.pdf", "file": mcp_block(PDF, "application/pdf", "file")},
        [{"type": "image", "data": base64_of(PDF), "mimeType": "image/png", "metadata": {"filename": "a.pdf"}}],
    ],
)
def test_a_name_in_json_is_the_name_of_its_content(found):
    assert [attachment.name for attachment in replaced(json.dumps(found))[1]] == ["a.pdf"]


@pytest.mark.parametrize(
    "members",
    [
        {"type": "file", "path": "/a.py", "data": "print('hello')\n" * 9},
        {"type": "document", "data": "Some prose about a thing without a single full stop which goes on and on and on"},
        {"type": "file", "format": "py", "data": "import json, sys, itertools, functools, collections, contextlib, re"},
        {"type": "image", "data": "a picture of a cat"},
        {"type": "image", "data": "cats"},
        {"type": "commit", "file": {"name": "x.py", "data": "print(1)"}},
        {"type": "product", "image_url": "/static/product-images/large/2024/0123456789abcdef0123456789abcdef-x2.png"},
        {"type": "product", "image_url": ""},
        {"type": "event", "video_url": "videos/intro.mp4"},
        {"type": "event", "input_audio": {"data": "none"}},
    ],
    ids=json.dumps,
)
def test_a_member_of_json_that_is_only_called_like_a_part_stays(members):
    text = json.dumps({"sha256": "0123456789abcdef" * 4, "items": [members]})
    assert replaced(text) == (text, [])


@pytest.mark.parametrize("frame", [lambda found: found, lambda found: {"files": [{"name": "a.png", "body": found}]}])
def test_a_buffer_of_node_is_the_content_that_its_numbers_are(frame):
    text = json.dumps(frame({"type": "Buffer", "data": [*PNG]}))
    after, found = replaced(text)
    assert [one.content() for one in found] == [PNG]
    assert json.loads(after) == frame({"type": "text", "text": STANDS})
    assert may_hold_media(json.dumps({"role": "tool", "content": text}).encode())


@pytest.mark.parametrize(
    "data",
    [[*b"only words, in numbers, of which there are a few more than sixty-four"], [300] * 90, ["x"] * 90, "x", [1]],
)
def test_a_buffer_of_text_or_of_anything_else_stays(data):
    text = json.dumps({"type": "Buffer", "data": data})
    assert with_replaced(text, lambda _: Replacement(STANDS)) == text


def test_a_long_buffer_is_read_however_many_numbers_it_has():
    content = PNG + bytes(250_000)
    _, (found,) = replaced(json.dumps({"type": "Buffer", "data": [*content]}))
    assert found.content() == content


def test_members_beside_an_address_in_json_are_read_too():
    product = {"type": "product", "image_url": "https://example.org/a.png", "thumbnail": ENCODED}

    def replace_what_is_here(attachment):
        return None if attachment.is_elsewhere else Replacement(STANDS)

    assert json.loads(with_replaced(json.dumps(product), replace_what_is_here)) == product | {"thumbnail": STANDS}


def test_json_stays_json_whatever_the_words_hold():
    text = json.dumps({"a": ENCODED, "é": [data_url(PNG, "image/png")]})
    after, _ = replaced(text, 'two\nlines "quoted" \\ é')
    assert json.loads(after) == {"a": 'two\nlines "quoted" \\ é', "é": ['two\nlines "quoted" \\ é']}


def test_json_in_strings_of_json_is_read_too():
    inner = json.dumps({"content": [mcp_block()]})
    text = json.dumps({"status": "success", "data": json.dumps({"deep": inner})})
    after, found = replaced(text)
    assert len(found) == 1
    innermost = json.loads(json.loads(json.loads(after)["data"])["deep"])
    assert innermost == {"content": [{"type": "text", "text": STANDS}]}


def test_a_type_beside_a_member_proves_what_no_signature_does():
    content = b"\x00\x01raw samples" * 9
    text = json.dumps({"mimeType": "audio/pcm", "blob": base64_of(content), "other": base64_of(content)})
    after, found = replaced(text)
    assert [attachment.content() for attachment in found] == [content]
    assert json.loads(after)["blob"] == STANDS
    assert json.loads(after)["other"] == base64_of(content)


def test_a_structured_result_whose_content_is_shown_keeps_its_members():
    after, found = replaced(routing_result(), is_shown=True)
    assert json.loads(after) == {"routing": "image_url", "imageUrl": STANDS, "metadata": {"name": "a"}}
    assert (found[0].is_asked_for, found[0].name) == (True, "a")


PDF_URL = data_url(PDF, "application/pdf")


@pytest.mark.parametrize(
    "members",
    [
        {"routing": "image_url", "imageUrl": image_part()},
        {"routing": "image_url", "imageUrl": {"url": data_url(PNG, "image/png")}},
        {"routing": "image_url", "imageUrl": data_url(PNG, "image/png")},
        {"routing": "image_url", "imageUrl": ENCODED},
        {"routing": "image_url", "imageUrl": base64_of(PNG[:5])},
        {"routing": "image_url", "artifact": "artifact:tool_x_0123456789abcdef.png"},
        {"routing": "image_url", "imageUrl": "https://example.org/a.png"},
        {"routing": "file", "file": PDF_URL},
        {"routing": "file", "file": {"file_data": PDF_URL, "filename": "inner.pdf"}},
        {"routing": "file", "file": base64_of(PDF)},
        {"routing": "file", "file": base64_of(b"no magic"), "metadata": {"mimeType": "application/pdf"}},
        {"routing": "file", "file": base64_of(b"no magic"), "metadata": {"filename": "a.pdf"}},
        {"routing": "file", "content": PDF_URL},
    ],
    ids=json.dumps,
)
def test_a_structured_result_replaced_by_words_is_a_text_result(members):
    whole = {**members, "metadata": {"filename": "a.bin", **members.get("metadata", {})}, "n": 1}
    text = json.dumps(whole)
    after, found = replaced(text)
    assert json.loads(after) == {"routing": "text", "content": STANDS, "metadata": whole["metadata"], "n": 1}
    assert len(found) == 1
    assert found[0].name == ("inner.pdf" if "inner.pdf" in text else whole["metadata"]["filename"])
    assert may_hold_media(json.dumps({"role": "tool", "content": text}).encode())
    assert replaced(after) == (after, [])
    assert replaced(text, None)[0] == text


def test_what_a_structured_result_says_besides_stays_in_its_content():
    result = {"routing": "image_url", "imageUrl": ENCODED, "content": "A chart."}
    assert json.loads(replaced(json.dumps(result))[0]) == {"routing": "text", "content": f"{STANDS}\nA chart."}
    odd = {"routing": "image_url", "imageUrl": ENCODED, "content": [{"a": 1}]}
    assert json.loads(replaced(json.dumps(odd))[0]) == odd | {"imageUrl": STANDS}


def test_a_structured_result_with_one_content_shown_and_one_described_says_both():
    def replace(attachment):
        return Replacement("shown", is_shown=True) if attachment.name == "inner" else Replacement("described")

    result = {"routing": "image_url", "imageUrl": image_part() | {"name": "inner"}, "file": PDF_URL, "metadata": {}}
    after = with_replaced(json.dumps(result), replace)
    assert json.loads(after) == result | {"imageUrl": "shown", "file": "described"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"routing": "text", "content": "hello " * 30}),
        json.dumps({"routing": "file", "file": {"note": "no content"}}),
        json.dumps({"error": "artifact_not_found", "artifactId": "tool_x_0123456789abcdef.png", "hint": "y" * 80}),
        json.dumps({"url": "https://example.org/" + "a" * 90 + ".png"}),
    ],
)
def test_a_structured_result_of_text_stays(text):
    assert replaced(text) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" * 4,
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0."
        + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U" * 3,
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7" + "vbqajDw4o6gJy8Utmis7CmyRwvQQX5Zv" * 9,
        "src/" + "a_long_directory_name/" * 30 + "file_of_the_project",
        "a" * 10_000,
        "AAAA" * 1_000,
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" * 2,
        "1f8b" * 40,
        "var a=function(){return" + "aVeryLongMinifiedIdentifier_$".replace("$", "z") * 40,
        "-----BEGIN CERTIFICATE-----\n"
        + ("MIIDXTCCAkWgAwIBAgIJAJC1HiIAZAiIMA0GCSqGSIb3Df" * 2)[:64]
        + "\n-----END CERTIFICATE-----",
        base64_of(b"just some text, which is none of our business, as nobody claims anything. " * 4),
        json.dumps({"token": base64_of(bytes(range(3, 103))), "sha": "0" * 64}),
        json.dumps({"type": "image", "note": "no data here at all, only words " * 4}),
    ],
)
def test_long_runs_of_letters_are_no_files(text):
    assert replaced(text) == (text, [])


@pytest.mark.parametrize(
    "files",
    [
        Path(json.__file__).parent.parent.glob("*.py"),
        *(Path(one).parent.rglob("*.py") for one in (json.__file__, jsontext.__file__, __file__)),
    ],
)
def test_no_source_file_is_taken_for_binary(files):
    for path in sorted(files):
        text = path.read_text(errors="replace")
        if path.name != "media_samples.py":
            assert [one for one in replaced(text)[1] if not one.is_data_url] == [], path


def test_a_file_decoded_by_force_is_one_content():
    text = (PNG * 30).decode("utf-8", "replace")
    after, found = replaced(text)
    assert (after, found[0].content()) == (STANDS, text.encode())
    assert may_hold_media(json.dumps({"content": text}).encode())
    assert may_hold_media(json.dumps({"content": text}, ensure_ascii=False).encode())
    inside = json.dumps({"path": "a.png", "body": text})
    assert json.loads(replaced(inside)[0]) == {"path": "a.png", "body": STANDS}


def test_a_pdf_of_plain_text_is_one_content():
    text = PDF.decode()
    assert replaced(text)[0] == STANDS
    assert may_hold_media(json.dumps({"content": text}).encode())


@pytest.mark.parametrize(
    "text",
    ["\ufffd in a text " * 9, "\x1b[31mred\x1b[0m " * 20, "100%PDF-ready " * 9, "读取文件" * 50, "café\x00 " * 20],
)
def test_real_text_with_odd_characters_stays(text):
    assert replaced(text) == (text, [])


def test_base64_that_was_cut_off_is_one_content_that_is_broken():
    cut = base64_of(PNG * 9)[:205]
    after, found = replaced(f'{{"image": "{cut}…')
    assert after == f'{{"image": "{STANDS}…'
    assert found[0].content() is None


def test_what_is_to_stay_stays():
    text = json.dumps({"a": data_url(CSV, "text/csv") + "x" * 64, "b": [mcp_block()], "c": ENCODED}, indent=2)
    assert replaced(text, None)[0] == text
    assert len(replaced(text, None)[1]) >= 2


def test_deep_and_wide_json_costs_no_more_than_reading_it_as_text():
    for levels in (99, 100, 101, 900, 3_000):
        deep = "[" * levels + f'"{ENCODED}"' + "]" * levels
        assert ENCODED not in replaced(deep)[0], f"{levels} levels"
    wide = json.dumps([{"a": number} for number in range(110_000)] + [ENCODED])
    assert ENCODED not in replaced(wide)[0]


@given(st.text(), st.text())
def test_nothing_raises_and_nothing_but_the_content_goes(before, after):
    text = f"{before} {data_url(PNG, 'image/png')} {after}"
    made, found = replaced(text)
    if len(found) == 1 and found[0].content() == PNG:
        assert ENCODED not in made


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


BLANKS_AND_WORDS = st.lists(st.text(string.ascii_letters + string.digits, max_size=20)).map(" ".join)


def raw(content) -> bytes:
    return json.dumps({"role": "tool", "content": content}).encode()


@given(BLANKS_AND_WORDS)
def test_a_message_of_plain_words_is_not_opened(text):
    assert may_hold_media(raw(text)) is False
    assert may_hold_media(raw([{"type": "text", "text": text}])) is False


@given(BLANKS_AND_WORDS, st.sampled_from(["utf-8", "ascii"]), st.binary(min_size=MIN_CHARACTERS, max_size=200))
def test_base64_in_a_text_is_a_sign_in_any_context(before, how, content):
    text = f"{before} {base64.b64encode(content).decode()}"
    assert may_hold_media(b'{"content":' + spelled(text, how) + b"}")


@pytest.mark.parametrize(("length", "found"), [(MIN_CHARACTERS - 1, False), (MIN_CHARACTERS, True)])
def test_a_run_of_letters_is_a_sign_from_the_length_of_the_shortest_file_on(length, found):
    assert may_hold_media(raw(f"a {'x' * length} z")) is found


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({"type": "image_url"}, True),
        ({"type": "input_audio"}, True),
        ({"type": "unheard_of"}, True),
        ({"type": "text"}, False),
        ({"type": "function"}, False),
    ],
)
def test_every_part_that_is_no_text_and_no_call_is_a_sign(part, found):
    assert may_hold_media(raw([part])) is found


@pytest.mark.parametrize(
    "text", ['{"media_type": "a/b"}', '{"mimeType" \n\t: "a/b"}', '{"of": "{\\"contentType\\"\\n : 1}"}']
)
def test_what_declares_a_content_of_any_length_is_a_sign_however_it_is_spelled(text):
    assert may_hold_media(raw(text))


@pytest.mark.parametrize("how", ["utf-8", "ascii", "escaped"])
def test_a_file_that_was_decoded_by_force_is_found_in_every_spelling(how):
    text = PNG.decode(errors="replace")
    assert may_hold_media(b'{"content":' + spelled(text, how) + b"}")
    assert may_hold_media(raw("%PDF-1.4 of letters only"))


@pytest.mark.parametrize("written", ["\ufffd".encode(), b"\\ufffd", b"\\uFFFD", b"\\u0001"])
def test_a_replacement_character_is_a_sign_however_it_is_written(written):
    assert may_hold_media(b'{"content":"a ' + written + b'"}')


URL = "https://example.org/a.png"
ID = Artifact(b"image", "Read", "png").id
HELD = f"artifact:{ID}"


def routed(**members):
    return json.dumps(members)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": URL}},
        {"type": "image_url", "image_url": URL},
        {"type": "input_image", "image_url": URL},
        {"url": URL},
        URL,
    ],
)
def test_an_image_names_its_address_in_every_spelling(part):
    result = routed(routing="image_url", imageUrl=part)
    assert list(addresses_in(result, is_result=True)) == [URL]
    assert "image_url" not in part or list(addresses_in([part], is_result=False)) == [URL]


@pytest.mark.parametrize(
    ("inner", "addresses"),
    [
        ({"file_id": "file-1", "file_data": "data:,x"}, []),
        ({"file_url": HELD, "file_id": "file-1"}, [HELD]),
        ({"file_url": "https://h/a.pdf", "file_id": "file-1"}, []),
        ({"file_id": 7}, []),
        ({"filename": "a.pdf"}, []),
    ],
)
def test_of_several_members_of_a_file_the_one_that_leads_to_its_content_is_its_address(inner, addresses):
    assert list(addresses_in([{"type": "file", "file": inner}], is_result=False)) == addresses
    assert list(addresses_in([{"type": "input_file"} | inner], is_result=False)) == addresses
    assert list(addresses_in(routed(routing="file", file=inner), is_result=True)) == addresses


def test_an_image_on_the_web_is_fetched_here_and_a_file_on_the_web_is_left_to_the_upstream():
    image = {"type": "image_url", "image_url": {"url": "https://h/a.png"}}
    file = {"type": "file", "file": {"file_data": "https://h/a.pdf"}}
    kept = {"type": "file", "file": {"file_data": "artifact:tool_x"}}
    assert list(addresses_in([image, file, kept], is_result=False)) == ["https://h/a.png", "artifact:tool_x"]


def test_json_in_strings_of_json_is_read_a_few_levels_deep():
    deep = text = f"see {data_url(PNG, 'image/png')}"
    for _ in range(10):
        deep = json.dumps({"said": deep})
    assert with_replaced(deep, lambda _: Replacement("words")) == deep
    assert with_replaced(json.dumps({"said": text}), lambda _: Replacement("words")) == '{"said":"see words"}'
