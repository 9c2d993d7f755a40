import pytest
from support.upstream import listening, model_server

from proxy.commands import init as command
from proxy.commands.init import init
from proxy.config import Settings, load


@pytest.fixture(autouse=True)
def _no_servers(monkeypatch):
    monkeypatch.setattr("proxy.commands.init.LOCAL_SERVERS", {1: "nobody"})


def test_it_writes_the_upstream_and_the_windows_that_it_states(tmp_path, monkeypatch, capsys):
    path = tmp_path / "config.yaml"
    with listening(model_server(8_000, "vllm")) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert init(Settings(data_dir=tmp_path), path) == 0
        found = load(path)
        assert found.upstream.base_url == url
        assert [(one.match, one.context_window) for one in found.models] == [("embedded-model", 8_000)]
    assert f"context-proxy doctor --config {path}" in capsys.readouterr().out


def test_a_file_that_is_there_stays(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text("mine")
    assert init(Settings(data_dir=tmp_path), path) == 1
    assert (path.read_text(), "--config names another file" in capsys.readouterr().err) == ("mine", True)


def test_a_key_in_the_environment_names_its_provider_and_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    assert command._base_url(Settings(data_dir=tmp_path)) == "https://api.anthropic.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert init(Settings(data_dir=tmp_path), tmp_path / "config.yaml") == 0
    assert "sk-canary" not in (tmp_path / "config.yaml").read_text()
    assert load(tmp_path / "config.yaml").upstream.base_url == "http://127.0.0.1:9/v1"


def test_a_server_on_this_machine_is_found(tmp_path, monkeypatch):
    with listening(model_server(8_000)) as url:
        port = int(url.removesuffix("/v1").rpartition(":")[2])
        monkeypatch.setattr("proxy.commands.init.LOCAL_SERVERS", {1: "nobody", port: "somebody"})
        assert command._base_url(Settings(data_dir=tmp_path)) == url


def test_where_nothing_is_found_a_sentence_says_where_it_looked(tmp_path, capsys):
    assert init(Settings(data_dir=tmp_path), tmp_path / "config.yaml") == 1
    assert "name one with --upstream" in capsys.readouterr().err
    assert not (tmp_path / "config.yaml").exists()
