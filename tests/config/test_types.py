"""Kinds of settings, and keys that files hold, as Docker and Kubernetes give secrets."""

import pytest
from support.settings import mistakes

from proxy.config import VARIABLES, SettingsError, client_keys, load
from proxy.core.models import Modality
from proxy.shell.artifacts import KEY_HEADERS

KEY = "sk-canary-of-a-file"


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    return file


def test_a_key_file_can_replace_each_key(key_file, tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text(f"upstream: {{api_key_file: {key_file}}}")
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__ADMIN_KEY_FILE", str(key_file))
    found = load(tmp_path / "config.yaml")
    assert (found.upstream.api_key.get_secret_value(), found.server.admin_key.get_secret_value()) == (KEY, KEY)
    assert "canary" not in repr(found)


def test_a_key_beats_a_file(key_file, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-plain")
    found = load(flags={"upstream": {"api_key_file": key_file}})
    assert found.upstream.api_key.get_secret_value() == "sk-plain"


def test_settings_differ_where_what_the_file_holds_does(key_file):
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
def test_a_file_without_a_key_is_one_line_that_names_its_setting(content, says, tmp_path):
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(SettingsError) as refused:
        load(flags={"upstream": {"api_key_file": tmp_path / "key"}})
    assert str(refused.value) == f"upstream.api_key_file: {says}"


def test_a_key_that_is_too_short_is_reported_without_its_value(tmp_path):
    (tmp_path / "key").write_text("short-canary")
    with pytest.raises(SettingsError) as refused:
        load(flags={"server": {"admin_key_file": tmp_path / "key"}})
    assert str(refused.value) == "server.admin_key: must have at least 16 characters"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("http://host/v1", "http://host/v1"),
        ("http://host/v1/", "http://host/v1"),
        ("https://host/openai/deployments/x", "https://host/openai/deployments/x"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_a_base_url_without_a_path_gets_v1(given, used):
    assert load(flags={"upstream": {"base_url": given}}).upstream.base_url == used


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://x", "localhost:8000", "nope", "http://", "http://[::1", "http://x:99999", "http://x:0"),
        *("http://a b/", "//x"),
    ],
)
def test_a_base_url_must_be_one(url):
    assert mistakes(flags={"upstream": {"base_url": url}}) == [
        f"upstream.base_url: must be a URL such as https://api.openai.com/v1, found {url!r}"
    ]


@pytest.mark.parametrize(("name", "stated"), [("mode", "on"), ("mode", "off"), ("history", "heal"), ("history", "off")])
def test_on_and_off_that_yaml_reads_as_true_and_false_need_no_quotes(name, stated, config):
    assert getattr(load(config(f"{name}: {stated}")), name) == stated


def test_a_newline_behind_a_key_as_secrets_in_files_have_it_is_no_part_of_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " sk-1\n")
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__ADMIN_KEY", "ein Schlüssel mit Blank\r\n")
    settings = load()
    assert settings.upstream.api_key.get_secret_value() == "sk-1"
    assert settings.server.admin_key.get_secret_value() == "ein Schlüssel mit Blank"


@pytest.mark.parametrize(("given", "used"), [(0, 4000), (-5, 4000), (1, 1000), (999, 1000), (1000, 1000), (7000, 7000)])
def test_most_characters_of_a_tool_result_have_a_floor(given, used, config):
    assert (
        load(config(f"models: [{{match: x, max_tool_result_chars: {given}}}]")).models[0].max_tool_result_chars == used
    )


def test_one_modality_needs_no_list(config):
    assert load(config("defaults: {input: vision}")).defaults.input == {Modality.VISION}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("redis://host", "redis://host"),
        ("valkey://:secret@host:6379/3", "redis://:secret@host:6379/3"),
        ("valkeys://me:secret@[::1]:6380", "rediss://me:secret@[::1]:6380"),
        (" rediss://host/0\n", "rediss://host/0"),
    ],
)
def test_the_server_of_the_state_is_redis_or_valkey(given, meant):
    url = load(flags={"state": {"url": given}}).state.url
    assert url.get_secret_value() == meant
    assert "secret" not in str(url)


@pytest.mark.parametrize(
    "given",
    ["http://canary", "redis://", "canary", "redis://h/canary", "redis://h?db=canary", "redis://canary:x/0", ""],
)
def test_no_other_server_of_the_state_is_taken_and_none_is_quoted(given):
    with pytest.raises(SettingsError, match=r"state\.url") as refused:
        load(flags={"state": {"url": given}})
    assert "canary" not in str(refused.value)


def test_the_state_servers_url_may_be_in_a_file(tmp_path):
    (tmp_path / "url").write_text("valkey://:secret@host:6379\n")
    url = load(flags={"state": {"url_file": tmp_path / "url"}}).state.url
    assert url.get_secret_value() == "redis://:secret@host:6379"


@pytest.mark.parametrize(("flags", "name"), [({"state": {"url": "redis://h"}}, "redis"), ({"mcp": True}, "mcp")])
def test_a_missing_extra_is_noticed_at_the_start(flags, name, monkeypatch):
    monkeypatch.setattr("proxy.config.types.find_spec", lambda _: None)
    with pytest.raises(
        SettingsError, match=rf"needs the extra `{name}`, which is not installed: docs/install\.md#extras says how$"
    ):
        load(flags=flags)


def test_every_variable_that_is_set_is_a_header_that_separates_tenants():
    headers = client_keys(dict.fromkeys(VARIABLES, "secret"))
    assert len(headers) == len(VARIABLES)
    assert {name for name, _ in headers} == KEY_HEADERS
    assert client_keys({}) == client_keys(dict.fromkeys(VARIABLES, "")) == []
