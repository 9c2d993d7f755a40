import os
import subprocess
import sys

import pytest
from support.waiting import PATIENCE_SECONDS

from proxy import __main__, __version__
from proxy.__main__ import main
from proxy.config import ENV_ALIASES

COMMANDS = ("run", "env", "serve", "status", "init", "check", "doctor", "demo", "explain", "models", "artifacts")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith("CONTEXT_PROXY_") or name in ENV_ALIASES:
            monkeypatch.delenv(name)


@pytest.fixture
def served(monkeypatch):
    """The settings that reach the server, which does not start."""
    found = []
    monkeypatch.setattr("proxy.server.serve", lambda settings, *_: found.append(settings) or 0)
    return found


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_every_command_explains_itself(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {' '.join(['context-proxy', *arguments[:-1]])} ")
    missing = [command for command in COMMANDS if f"    {command}" not in shown] if len(arguments) == 1 else []
    assert missing == []


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        (["--upstream", "http://host:1"], "upstream.base_url", "http://host:1/v1"),
        (["--host", "0.0.0.0"], "server.host", "0.0.0.0"),
        (["--port", "1234"], "server.port", 1234),
        (["--port", "0"], "server.port", 0),
        (["--workers", "3"], "server.workers", 3),
        (["--context-window", "4096"], "defaults.context_window", 4096),
        (["--data-dir", "/kept"], "data_dir", __main__.Path("/kept")),
        ([], "server.port", 8787),
    ],
)
def test_each_flag_reaches_its_setting(arguments, path, value, served):
    assert main(["serve", *arguments]) == 0
    found = served[0]
    for step in path.split("."):
        found = getattr(found, step)
    assert found == value


def test_flags_beat_the_file_and_the_environment(tmp_path, monkeypatch, served):
    (tmp_path / "config.yaml").write_text("server: {port: 1, workers: 4}\nupstream: {base_url: http://yaml}")
    monkeypatch.setenv("UPSTREAM", "http://variable")
    main(["serve", "--config", str(tmp_path / "config.yaml"), "--port", "3", "--upstream", "http://flag"])
    assert served[0].upstream.base_url == "http://flag/v1"
    assert (served[0].server.port, served[0].server.workers) == (3, 4)


@pytest.mark.parametrize("command", ["serve", "models"])
def test_wrong_settings_are_reported_on_standard_error_and_nothing_listens(command, capsys, monkeypatch, served):
    monkeypatch.setenv("CONTEXT_PROXY_PROT", "1")
    assert main([command, "--upstream", "nope", "--context-window", "few"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(":")[0] for line in captured.err.splitlines()] == [
        "CONTEXT_PROXY_PROT",
        "upstream.base_url",
        "defaults.context_window",
    ]
    assert served == []


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["serve", "--prot", "1"], ["serve", "extra"]])
def test_wrong_arguments_are_status_2(arguments, capsys, served):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: context-proxy" in capsys.readouterr().err
    assert served == []


def test_ctrl_c_is_status_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("proxy.server.serve", interrupted)
    assert main(["serve"]) == 130


def test_python_m_proxy_is_the_same_command():
    shown = subprocess.run(
        [sys.executable, "-m", "proxy", "--version"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (shown.returncode, shown.stdout.strip(), shown.stderr) == (0, __version__, "")
    wrong = subprocess.run(
        [sys.executable, "-m", "proxy", "serve", "--port", "x"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "server.port: must be a whole number, found 'x'\n"


def test_a_terminal_that_lacks_a_character_is_no_reason_to_fail(tmp_path):
    arguments = ["models", "gpt\u20134o", "--upstream", "http://127.0.0.1:9/v1", "--data-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run([sys.executable, "-m", "proxy", *arguments], env=environment, capture_output=True, check=True)
    assert b"\\u2013" in ran.stdout


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = [sys.executable, "-m", "proxy", "artifacts", "ls", "--data-dir", str(tmp_path)]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("count", ["0", "-1", "x", "1.5", "²"])
def test_a_count_is_a_number_from_one_on(count, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["artifacts", "ls", "--max", count, "--data-dir", str(tmp_path)])
    assert stopped.value.code == 2
    assert "--max: must be a whole number from 1 to 1000000000, found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "close"),
    [
        (["serv"], "serve"),
        (["serve", "--upsteam", "http://x"], "--upstream"),
        (["models", "--forgett"], "--forget"),
        (["artifacts", "sho", "x"], "show"),
    ],
)
def test_a_misspelt_word_gets_the_one_that_was_probably_meant(arguments, close, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert f"; did you mean {close}?" in capsys.readouterr().err
