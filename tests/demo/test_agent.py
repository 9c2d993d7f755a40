import json
import re
import socket
from functools import partial

import httpx
import pytest
from support.serving import serving
from support.upstream import scripted
from support.waiting import PATIENCE_SECONDS

from proxy.demo import (
    Call,
    CannotStart,
    Toolbox,
    create_model_server,
    investigate,
    make_incident,
    next_reply,
    proxy_in_front_of,
)
from tools.ports import held_port


def work(window_tokens, folder):
    incident = make_incident(8)
    with serving(create_model_server(window_tokens, partial(next_reply, incident))) as url:
        return investigate(url, incident.task, Toolbox(incident, folder), 40, lambda _: None)


def test_the_direct_run_dies_of_a_shown_refusal_where_the_conversation_passes_the_window(tmp_path):
    turns = work(16_000, tmp_path)
    assert [bool(turn.refusal) for turn in turns] == [False] * (len(turns) - 1) + [True]
    assert all(turn.conversation_tokens == turn.prompt_tokens < 16_000 for turn in turns[:-1])
    assert turns[-1].conversation_tokens >= 16_000
    words = "This model's maximum context length is 16000 tokens. However, your messages resulted in"
    assert turns[-1].refusal.startswith(
        f"400 context_length_exceeded: {words} {turns[-1].conversation_tokens} tokens ("
    )


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


def test_a_proxy_that_cannot_start_is_said_with_the_reason(tmp_path):
    with (
        held_port() as port,
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(CannotStart, match=f"^the proxy cannot listen on port {port}: Address already in use"),
        proxy_in_front_of("http://127.0.0.1:9", 8_000, tmp_path, port),
    ):
        raise AssertionError("it must not come this far")


def test_the_demos_proxy_sees_nothing_of_the_users_settings(tmp_path, monkeypatch):
    for name, value in {"OPENAI_API_KEY": "mine", "CONTEXT_PROXY_PORT": "x", "UPSTREAM": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    with (
        serving(create_model_server(8_000, scripted)) as upstream,
        proxy_in_front_of(upstream, 8_000, tmp_path) as proxy,
    ):
        turns = investigate(proxy, "task", Toolbox(make_incident(2), tmp_path), 5, lambda _: None)
    assert [turn.refusal for turn in turns] == [""]
