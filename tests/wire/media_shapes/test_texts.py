from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import (
    CSV,
    JPEG,
    MP4,
    PDF,
    PNG,
    SVG,
    WAV,
    ZIP,
    anthropic_block,
    audio_part,
    base64_of,
    data_url,
    image_part,
    mcp_block,
    resource_block,
    routing_result,
)

from proxy.core.conversation.attachment import Replacement
from proxy.core.text import jsontext
from proxy.wire.media_shapes.signs import may_hold_media
from proxy.wire.media_shapes.texts import with_replaced

STANDS = "<content>"
ENCODED = base64_of(PNG)
WRAPPED = "\n".join(ENCODED[at : at + 76] for at in range(0, len(ENCODED), 76))


def replaced(text, words=STANDS, *, is_shown=False):
    """The text with words in the place of contents, and these."""
    found = []

    def replace(attachment):
        found.append(attachment)
        return None if words is None else Replacement(words, is_shown)

    return with_replaced(text, replace), found


def found_in(text):
    return [attachment.content() for attachment in replaced(text)[1]]


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
def test_base64_of_a_known_type_is_found_wherever_it_stands(content, frame):
    text = frame.format(base64_of(content))
    after, found = replaced(text)
    assert [attachment.content() for attachment in found] == [content]
    assert after == frame.format(STANDS)
    assert may_hold_media(json.dumps({"role": "tool", "content": text}).encode())


@pytest.mark.parametrize("declared", ["image/png", "application/octet-stream", "", "image/png;charset=utf-8"])
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
def test_a_short_text_that_nobody_declares_to_be_binary_stays(text):
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
    found = []
    replaced_text = with_replaced(text, lambda one: found.append(one) or Replacement(STANDS))
    assert [one.content() for one in found] == [PNG]
    assert json.loads(replaced_text) == frame({"type": "text", "text": STANDS})
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
    found = []
    with_replaced(json.dumps({"type": "Buffer", "data": [*content]}), lambda one: found.append(one.content()))
    assert found == [content]


def test_what_stands_beside_an_address_in_json_is_read_too():
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
def test_a_structured_result_that_words_stand_for_is_one_of_text(members):
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
    "root", [Path(json.__file__).parent, Path(jsontext.__file__).parent, Path(__file__).parent.parent]
)
def test_no_source_file_is_taken_for_binary(root):
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        if path.name != "media_samples.py":
            assert [one for one in replaced(text)[1] if not one.is_data_url] == [], path


def test_no_file_of_the_standard_library_with_long_runs_is_taken_for_binary():
    folder = Path(json.__file__).parent.parent
    texts = [path.read_text(errors="replace") for path in sorted(folder.glob("*.py"))]
    long_runs = [text for text in texts if re.search(r"[A-Za-z0-9+/_-]{64}", text)]
    assert long_runs, sys.version
    for text in long_runs:
        assert found_in(text) == []


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


def test_svg_is_found_as_what_it_is():
    assert found_in(f"background: url({data_url(SVG, 'image/svg+xml')})") == [SVG]


@given(st.text(), st.text())
def test_nothing_raises_and_nothing_but_the_content_goes(before, after):
    text = f"{before} {data_url(PNG, 'image/png')} {after}"
    made, found = replaced(text)
    if len(found) == 1 and found[0].content() == PNG:
        assert ENCODED not in made
