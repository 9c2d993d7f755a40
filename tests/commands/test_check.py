import pytest

from proxy.__main__ import main


def test_valid_settings_are_confirmed_in_one_line(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text("upstream: {base_url: http://host:1, api_key: sk-canary}\nmode: observe\n")
    assert main(["check", "--config", str(file), "--port", "9", "--data-dir", str(tmp_path / "kept")]) == 0
    output = capsys.readouterr()
    where = f"127.0.0.1 port 9, to http://host:1/v1 with a key of its own, mode observe, files in {tmp_path / 'kept'}"
    assert (output.out, output.err) == (f"Configuration is valid: {where}.\n", "")
    assert list(tmp_path.iterdir()) == [file], "nothing is made"


def test_each_further_upstream_is_a_line(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    routed = [
        "{match: claude-*, wire: messages, base_url: http://a, api_key: sk-canary}",
        "{match: qwen*, base_url: http://b}",
    ]
    file.write_text(f"upstreams: [{', '.join(routed)}]\n")
    assert main(["check", "--config", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Requests for claude-* at /v1/messages go to http://a/v1 with a key of its own.",
        "Requests for qwen* go to http://b/v1 with the keys of its clients.",
    ]


def test_each_mistake_is_a_line_and_the_status_is_2(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text("server: {prot: 1}\nmode: maybe\n")
    assert main(["check", "--config", str(file)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert [line.split(":")[0] for line in output.err.splitlines()] == ["server.prot", "mode"]


def test_an_upstream_that_is_the_proxy_itself_is_a_mistake(capsys):
    assert main(["check", "--upstream", "http://127.0.0.1:8787"]) == 2
    mistake = "upstream.base_url: must not be the proxy itself, found http://127.0.0.1:8787/v1\n"
    assert capsys.readouterr().err == mistake
    assert main(["check", "--host", "localhost", "--upstream", "http://127.0.0.1:8787"]) == 2, "by another name"
    assert capsys.readouterr().err == mistake


@pytest.mark.parametrize("host", ["localhost", "no-such-host.invalid"])
def test_the_name_of_a_host_is_no_mistake_of_the_settings(host):
    assert main(["check", "--host", host, "--upstream", "http://127.0.0.2:8787"]) == 0


def test_replicas_without_a_common_secret_are_refused(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text(f"data_dir: {tmp_path}\nstate: {{url: 'redis://:canary@valkey'}}\n")
    assert main(["check", "--config", str(file)]) == 2
    assert (found := capsys.readouterr().err).startswith("server.secret: must be set with")
    assert "canary" not in found
