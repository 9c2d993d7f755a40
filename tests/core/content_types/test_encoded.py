from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.content_types.encoded import data_url, decoded, is_address, unquoted


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


def test_a_data_url_without_base64_is_quoted():
    assert unquoted("%3Csvg%3E é") == "<svg> é".encode()


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
