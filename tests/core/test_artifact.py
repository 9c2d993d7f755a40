from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.artifact import Artifact

SAFE = set(string.ascii_letters + string.digits + "_-.")


@given(st.binary(max_size=50), st.text(st.characters(categories=None), max_size=2_000))
def test_an_artifact_is_named_by_its_bytes_and_its_name_is_one_safe_path_segment(content, tool):
    name = Artifact(content, tool, "json").id
    assert name == Artifact(content, tool, "json").id
    assert set(name) <= SAFE
    assert len(name) <= 80
    assert name.startswith("tool_")
    assert name.endswith(".json")
    assert Artifact(content + b"x", tool, "json").id != name


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("../../etc/passwd", "tool_etc-passwd_e3b0c44298fc1c14.txt"),
        ("", "tool_messages_e3b0c44298fc1c14.txt"),
        ("工具", "tool_messages_e3b0c44298fc1c14.txt"),
        ("a" * 1_500, f"tool_{'a' * 48}_e3b0c44298fc1c14.txt"),
    ],
)
def test_the_name_of_a_tool_cannot_lead_out_of_a_folder(tool, name):
    assert Artifact(b"", tool).id == name


def test_content_never_shows_where_artifacts_are_printed():
    assert "secret" not in repr(Artifact(b"secret"))
