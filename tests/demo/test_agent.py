import json
import re
import signal
import subprocess
import sys

import httpx
import pytest
from support.serving import serving
from support.upstream import scripted
from support.waiting import PATIENCE_SECONDS

from proxy.demo import (
    Call,
    CannotStart,
    HasDefect,
    Toolbox,
    agent,
    create_model_server,
    detective,
    impersonal,
    investigate,
    make_incident,
    proxy_in_front_of,
    raise_defects,
)


def work(window_tokens, folder):
    incident = make_incident(8)
    with serving(create_model_server(window_tokens, detective)) as url:
        return investigate(url, incident.task, Toolbox(incident, folder), 40, lambda _: None)


def test_the_direct_run_dies_where_the_conversation_passes_the_window(tmp_path):
    turns = work(16_000, tmp_path)
    assert [bool(turn.refusal) for turn in turns] == [False] * (len(turns) - 1) + [True]
    assert all(turn.conversation_tokens == turn.prompt_tokens < 16_000 for turn in turns[:-1])
    assert turns[-1].conversation_tokens >= 16_000
    assert turns[-1].refusal.startswith("400")


def test_the_refusal_is_shown_with_its_code_and_the_servers_words(tmp_path):
    last = work(16_000, tmp_path)[-1]
    start = "400 context_length_exceeded: This model's maximum context length is 16000 tokens. However, your messages "
    assert last.refusal.startswith(f"{start}resulted in {last.conversation_tokens} tokens (")


def test_the_same_agent_finishes_where_the_window_is_large(tmp_path):
    turns = work(200_000, tmp_path)
    assert len(turns) == 12
    assert turns[-1].answer == f"After 8 services: {make_incident(8).answer}"


def test_an_agent_whose_server_is_gone_ends_with_a_refusal(tmp_path):
    with serving(create_model_server(1_000, scripted)) as url:
        pass
    turns = investigate(url, "task", Toolbox(make_incident(2), tmp_path), 5, lambda _: None)
    assert len(turns) == 1
    assert turns[0].refusal.startswith("ConnectError")


def run(toolbox, call):
    return toolbox.run(call.name, json.dumps(dict(call.arguments)))


def test_no_tool_prints_an_absolute_path_of_its_own():
    incident = make_incident(40)
    for text in (*incident.files.values(), *incident.test_output.values()):
        assert re.search(r"(?<![\w.])/\w", text) is None


@pytest.mark.parametrize("path", ["/etc/hostname", "{folder}/../secret.txt", "{folder}/link", "{folder}", "nothing"])
def test_tools_read_nothing_outside_their_folder(path, tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    toolbox = Toolbox(make_incident(2), folder)
    result = run(toolbox, Call("read_file", {"path": path.format(folder=folder)}))
    assert result.startswith("error: no such file")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("read_file", "{"), ("read_file", "{}"), ("grep", "[]"), ("run_tests", "null"), ("rm", "{}")],
)
def test_a_wrong_tool_call_gets_an_error_to_read(name, arguments, tmp_path):
    assert Toolbox(make_incident(2), tmp_path).run(name, arguments).startswith("error: ")


def test_a_server_is_gone_when_its_block_is_left():
    with serving(create_model_server(1_000, scripted)) as url:
        assert httpx.get(f"{url}/models", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models", trust_env=False, timeout=PATIENCE_SECONDS)


def test_a_server_whose_application_does_not_start_is_reported_at_once():
    async def broken(scope, receive, send):
        assert (await receive())["type"] == "lifespan.startup"
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(CannotStart, match="the application"), serving(broken):
        raise AssertionError("it must not come this far")


def test_a_proxy_that_cannot_start_is_said_with_its_last_words(tmp_path):
    with (
        pytest.raises(CannotStart, match=r"^the proxy did not start:\n.*upstream.base_url"),
        proxy_in_front_of("not-a-url", 8_000, tmp_path),
    ):
        raise AssertionError("it must not come this far")


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "planning_failed", "level": "error"}',
        "2026-11-23 [error    ] planning_failed  request_id=1",
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nIndexError: tuple',
    ],
)
def test_a_run_in_which_the_proxy_fails_inside_has_failed(line, tmp_path):
    with pytest.raises(HasDefect, match=line.rpartition("\n")[2][:20].replace("[", r"\[")):
        raise_defects(f'{{"event": "listening"}}\n{line}\n')
    model = create_model_server(8_000, scripted)
    with (
        pytest.raises(HasDefect),
        serving(model) as upstream,
        proxy_in_front_of(upstream, 8_000, tmp_path),
        (tmp_path / "proxy.log").open("a") as log,
    ):
        log.write(f"\n{line}\n")


def test_a_traceback_that_a_tool_has_written_is_no_defect():
    raise_defects('{"event": "edit", "text": "Traceback (most recent call last):\\n planning is hard"}\n')


def test_a_server_is_terminated_before_it_is_killed():
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        agent._stop(process)
        assert process.returncode == -signal.SIGTERM


def test_a_server_that_does_not_stop_is_killed(monkeypatch):
    monkeypatch.setattr("proxy.demo.agent.STOP_SECONDS", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        agent._stop(process)
        assert process.returncode == -signal.SIGKILL


def test_the_demos_proxy_sees_nothing_of_the_users_settings():
    personal = dict.fromkeys(("OPENAI_API_KEY", "CONTEXT_PROXY_MODE", "UPSTREAM", "TOOL_OUTPUT_DIR"), "mine")
    assert impersonal({**personal, "PATH": "/bin"}) == {"PATH": "/bin"}
