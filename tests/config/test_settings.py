import json
import os
import subprocess
import sys
from typing import get_args

import pytest
from support.settings import mistakes

from proxy.config import ENV_ALIASES, ModelSettings, Settings, load
from proxy.core.text import Direction
from proxy.shell.models.tokenizer import _VOCABULARIES


@pytest.mark.parametrize(
    ("path", "default", "yaml", "variable", "flag"),
    [
        ("server.port", 8787, 1, "2", "3"),
        ("server.host", "127.0.0.1", "a", "b", "c"),
        ("server.shutdown_grace_seconds", 25.0, 1.5, "2.5", "3.5"),
        ("upstream.base_url", "https://api.openai.com/v1", "http://a/v1", "http://b/v1", "http://c/v1"),
        ("defaults.context_window", None, 1000, "2000", "3000"),
        ("tool_output.direction", Direction.BOTH, "head", "tail", "both"),
        ("log.level", "info", "debug", "warning", "error"),
        ("budget.clamp_reply", True, False, "true", "false"),
    ],
)
def test_flags_beat_environment_beats_yaml_beats_defaults(path, default, yaml, variable, flag, config, monkeypatch):
    section, key = path.split(".")

    def value(*arguments):
        return getattr(getattr(load(*arguments), section), key)

    def like_default(text):
        return text if default is None else type(default)(text)

    file = config(f"{section}: {{{key}: {json.dumps(yaml)}}}")
    assert value() == default
    assert value(file) == yaml
    monkeypatch.setenv(f"CONTEXT_PROXY_{section}__{key}".upper(), variable)
    expected = {"true": True, "false": False}
    assert value(file) == expected.get(variable, int(variable) if default is None else like_default(variable))
    found = value(file, {section: {key: flag}})
    assert found == expected.get(flag, int(flag) if default is None else like_default(flag))


def test_keys_at_the_top_have_the_same_order(config, monkeypatch):
    file = config("enabled: false\nlanguage: zh\nmode: observe\ndata_dir: /yaml")
    monkeypatch.setenv("CONTEXT_PROXY_ENABLED", "true")
    monkeypatch.setenv("CONTEXT_PROXY_DATA_DIR", "/variable")
    settings = load(file, {"data_dir": "/flag"})
    assert (settings.enabled, settings.language, settings.mode) == (True, "zh", "observe")
    assert str(settings.data_dir) == "/flag"


@pytest.mark.parametrize(("alias", "place"), ENV_ALIASES.items())
def test_short_names_beat_yaml_and_long_names_beat_short_ones(alias, place, config, monkeypatch):
    section, key = place
    values = {"base_url": ("http://a/v1", "http://b/v1", "http://c/v1"), "direction": ("head", "tail", "both")}.get(
        key, ("1000", "2000", "3000")
    )

    def value(*arguments):
        found = getattr(getattr(load(*arguments), section), key)
        found = found.get_secret_value() if key == "api_key" else found
        return str(int(found) if isinstance(found, float) else found)

    file = config(f"{section}: {{{key}: '{values[0]}'}}")
    assert value(file) == values[0]
    monkeypatch.setenv(alias, values[1])
    assert value(file) == values[1]
    monkeypatch.setenv(f"CONTEXT_PROXY_{section}__{key}".upper(), values[2])
    assert value(file) == values[2]


def test_settings_made_without_load_read_no_source(monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__PORT", "1")
    monkeypatch.setenv("server", '{"port": 2}')
    assert Settings().server.port == 8787
    assert Settings(server={"port": 3}).server.port == 3


@pytest.mark.parametrize(
    "yaml",
    [
        *("upstream: {api_key: [SECRET]}", "upstream: {api_key: {SECRET: 1}}", 'upstream: {api_key: "SECRET'),
        *("upstream: {api_key: *SECRET}", "upstream: {api_key: !SECRET x}", "upstream:\n  api_key: @SECRET"),
        *("upstream:\n  api_key: SECRET and more", "upstream: {base_url: 'https://user:SECRET@host'}"),
        "upstream: {base_url: 'https://user:SEC/SECRET@host'}",
        *("upstream: {base_url: 'https://host/v1?key=SECRET'}", "upstream: {base_url: 'https://host/v1#SECRET'}"),
    ],
)
def test_no_mistake_shows_a_secret(yaml, config):
    assert "SECRET" not in "\n".join(mistakes(config(yaml)))


def test_the_key_is_not_shown_by_repr_and_json(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "SECRET")
    settings = load()
    assert settings.upstream.api_key.get_secret_value() == "SECRET"
    assert "SECRET" not in repr(settings) + settings.model_dump_json() + str(settings.model_dump())


def test_the_library_that_reads_the_settings_logs_none_of_them(monkeypatch, caplog):
    monkeypatch.setenv("PYDANTIC_SETTINGS_DEBUG", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "SECRET")
    with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", "pydantic_settings"):
        load()
    assert caplog.text == ""


@pytest.mark.parametrize("yaml", ["", "# nothing\n", "server:\nmodels:\n"])
def test_what_is_left_empty_is_the_default(yaml, config):
    assert load(config(yaml)) == load() == Settings()


@pytest.mark.parametrize("endpoint", ["/chat/completions", "/completions", "/responses", "/messages"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_base_url_is_no_endpoint(endpoint, slash):
    url = f"https://host/v1{endpoint}{slash}"
    assert mistakes(flags={"upstream": {"base_url": url}}) == [
        f"upstream.base_url: must be the base URL, without {endpoint}, found {url!r}"
    ]


def test_a_tokenizer_is_one_that_is_installed():
    known = ModelSettings.model_fields["tokenizer"].annotation
    assert set(get_args(get_args(known)[0])) == {*_VOCABULARIES, "bytes"}
    (mistake,) = mistakes(flags={"models": [{"match": "x", "tokenizer": "o200k"}]})
    assert mistake == "models[0].tokenizer: must be 'o200k_base', 'cl100k_base' or 'bytes', found 'o200k'"


def test_no_plugin_of_pydantic_is_looked_for_as_it_would_see_the_keys():
    code = (
        "import importlib.metadata\n"
        "def told(**_): raise SystemExit('plugins are looked for')\n"
        "importlib.metadata.entry_points = told\n"
        "from proxy.config.settings import load\n"
        "print(load().server.port)\n"
    )
    variables = {name: text for name, text in os.environ.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
    reported = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert (reported.stdout, reported.stderr) == ("8787\n", "")
