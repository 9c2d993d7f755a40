"""Keys that files hold, as Docker and Kubernetes give secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.config.settings import ENV_ALIASES, SettingsError, load

KEY = "sk-canary-of-a-file"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("CONTEXT_PROXY_") or name in ENV_ALIASES:
            monkeypatch.delenv(name)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    return file


def test_a_file_stands_for_each_key(key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(f"upstream: {{api_key_file: {key_file}}}")
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__ADMIN_KEY_FILE", str(key_file))
    found = load(tmp_path / "config.yaml")
    assert found.upstream.api_key is not None
    assert found.server.admin_key is not None
    assert (found.upstream.api_key.get_secret_value(), found.server.admin_key.get_secret_value()) == (KEY, KEY)
    assert "canary" not in repr(found)


def test_a_key_beats_a_file(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-plain")
    found = load(flags={"upstream": {"api_key_file": key_file}})
    assert found.upstream.api_key is not None
    assert found.upstream.api_key.get_secret_value() == "sk-plain"


def test_settings_differ_where_what_the_file_holds_does(key_file: Path) -> None:
    before = load(flags={"upstream": {"api_key_file": key_file}})
    assert load(flags={"upstream": {"api_key_file": key_file}}) == before
    key_file.write_text("sk-rotated")
    assert load(flags={"upstream": {"api_key_file": key_file}}) != before


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "must be a file with a key in it, and nothing else"),
        (b"sk-canary\nsk-canary-2\n", "must be a file with a key in it, and nothing else"),
        (b"\xff\xfe", "must be a file with a key in it, and nothing else"),
        (b"k" * 20_000, "must be a file with a key in it, and nothing else"),
    ],
)
def test_a_file_without_a_key_is_one_line_that_names_its_setting(
    content: bytes | None, says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        load(flags={"upstream": {"api_key_file": tmp_path / "key"}})
    assert str(refused.value) == f"upstream.api_key_file: {says}"


def test_a_key_that_is_too_short_is_told_without_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short-canary")
    with pytest.raises(SettingsError) as refused:
        load(flags={"server": {"admin_key_file": tmp_path / "key"}})
    assert str(refused.value) == "server.admin_key: must have at least 16 characters"
