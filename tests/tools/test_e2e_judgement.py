"""How `make e2e` judges a run of a client of the Messages or the Responses API; the clients run there alone."""

import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import aiohttp
import pytest
from support.upstream import FACES, Answer, ScriptedModel, Sent, SocketServer
from support.upstream.ollama_server import OllamaServer
from support.upstream.scenes import saying, streaming

from tools.e2e import clients, conversations, ollama_runs, wire_runs
from tools.e2e.clients import NotDelivered, end_all_at, install_npm, left_at
from tools.e2e.ollama_runs import OLLAMA_CLIENTS, OllamaRun
from tools.e2e.tap import TURN_HEADER, Exchange, Tap
from tools.e2e.trials import Ended
from tools.e2e.wire_clients import MESSAGES, RESPONSES, WIRE_CLIENTS
from tools.e2e.wire_runs import WireRun

FITTED = {wire_runs.FITTED: "before=9;after=7;room=8"}
GOOD_END = "Done after 8 steps.\n"


def body_of(*words):
    return {"messages": [{"role": "user", "content": word} for word in words]}


def seen(*words, turn=1, refused=False, complaints=()):
    body = {**body_of(*words), "tools": [{"name": "read_log"}]}
    headers = [(TURN_HEADER.encode(), str(turn).encode())]
    answer = Answer(400 if refused or complaints else 200, b"")
    found = Sent(FACES["messages"], MESSAGES, headers, b"", body, 10 * len(words), turn, answer=answer)
    found.complaints = complaints
    return found


def run(*sent, exit_code=0, output=GOOD_END, **exchange):
    model = ScriptedModel(sent=list(sent))
    members = {"status": 200, "headers": FITTED}
    bodies = [json.dumps(body_of(*"abcdefghij"[: turn + 1])).encode() for turn in range(9)]
    made = [Exchange(number, "POST", MESSAGES, sent, **members) for number, sent in enumerate(bodies, 1)]
    made[0] = dataclasses.replace(made[0], **exchange)
    return WireRun(exit_code, output, 1.0, tuple(made), model, 30)


HEALED = (seen("a"), seen("a", "b", turn=2), seen("a", "b", "c", turn=3, refused=True), seen("a", "c", turn=3))


def test_a_run_in_which_the_proxy_heals_is_without_fault():
    assert run(*HEALED).faults == []
    assert "ended well" in run(*HEALED).proxied


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (run(*HEALED, exit_code=1), "died: Done after 8 steps."),
        (run(*HEALED, output="I give up.\n"), "died: I give up."),
        (run(*HEALED, exit_code=None), "died: "),
        (run(*HEALED, status=400), "1 refusals seen"),
        (run(*HEALED, received=bytearray(b"event: response.failed\ndata: {}\n\n")), "1 refusals seen"),
        (run(*HEALED, seen("a", "c", turn=3)), "3 sends for one request"),
        (run(*HEALED, seen("a", complaints=("no result",), turn=4)), "1 complaints, the first: no result"),
        (run(*HEALED[:2]), "the model never refused"),
        (run(*HEALED, seen("a", turn=4), seen("b", "a", turn=5)), "1 cuts where all would have fitted"),
    ],
)
def test_each_fault_is_reported(wrong, words):
    assert [fault for fault in wrong.faults if fault.startswith(words)], wrong.faults


def test_a_cut_that_was_needed_is_none_to_blame():
    assert run(*HEALED).cuts == 1
    assert run(*HEALED).needless_cuts == 0


def test_a_client_that_begins_anew_is_not_the_proxys_cut():
    anew = run(*HEALED, seen("a", turn=4), seen("b", "a", turn=5))
    anew.exchanges[4].sent = json.dumps(body_of("b", "a")).encode()
    assert (anew.cuts, anew.needless_cuts) == (3, 0)


def test_an_api_that_is_passed_through_is_named_as_such():
    exchange, model = Exchange(1, "POST", MESSAGES, b"{}", status=400), ScriptedModel(sent=[seen("a", refused=True)])
    passed = WireRun(1, "no", 1.0, (exchange,), model)
    assert passed.proxied == "[red]passed through, not fitted[/]: 1 refusals seen, died, 1 s"
    assert not run(*HEALED).is_passed_through


def test_a_breakpoint_that_moves_is_no_cut():
    marked = seen("a")
    marked.json["messages"][0]["content"] = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    assert run(marked, HEALED[1]).cuts == 0


def test_directly_a_row_shows_what_becomes_of_the_client():
    refused = {"status": 400}
    assert "compacted by itself" in run(*HEALED, **refused).directly
    assert "died[/], exit 1, 1 refusals" in run(*HEALED, exit_code=1, output="Error: no", **refused).directly
    assert "no end after" in run(*HEALED, exit_code=None, **refused).directly
    assert "nothing was refused" in run(*HEALED[:2]).directly
    assert not run(*HEALED[:2]).proves_something
    assert not run(*HEALED, seen("a", complaints=("no result",))).proves_something
    assert run(*HEALED, exit_code=1).proves_something


def test_each_row_has_a_refusal_that_its_api_knows():
    faces = {face.path: face for face in FACES.values()}
    for client in WIRE_CLIENTS:
        assert client.refusal in faces[client.path].refusals
    assert {client.path for client in WIRE_CLIENTS} == {MESSAGES, RESPONSES}
    assert len({client.name for client in WIRE_CLIENTS}) == len(WIRE_CLIENTS)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux shows other processes' environment")
def test_what_a_client_leaves_running_in_a_group_of_its_own_is_seen_and_ends_with_its_home(tmp_path):
    waits = ["sleep", "600"]
    theirs, ours = (
        subprocess.Popen(waits, env={"PATH": os.environ["PATH"], "HOME": str(home)}, start_new_session=True)
        for home in (tmp_path, tmp_path / "another")
    )
    try:
        for process in (theirs, ours):  # Linux fills in a process's environment after Popen has returned
            while not Path(f"/proc/{process.pid}/environ").read_bytes():
                time.sleep(0.01)
        assert left_at(tmp_path) == ["sleep 600"]
        end_all_at(tmp_path)
        assert theirs.wait(120) == -signal.SIGKILL
        assert (left_at(tmp_path), ours.poll()) == ([], None)
    finally:
        for process in (theirs, ours):
            process.kill()
            process.wait()


async def test_the_tap_passes_everything_and_keeps_it():
    error = json.dumps({"error": "no"}).encode()
    answers = [saying(400, error, "application/json", "x-kept: yes"), streaming(b"event: error\n\n", b"data: {}\n\n")]
    requests = []

    async def script(connection):
        for scene in answers:
            requests.append(await connection.request())
            await scene(connection, requests[-1])

    async with (
        SocketServer(script) as upstream,
        Tap(f"http://127.0.0.1:{upstream.port}") as tap,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(f"{tap.root}/v1/messages?beta=true", data=b"{}", headers={"x-api-key": "k"}) as first:
            assert (first.status, await first.read(), first.headers["x-kept"]) == (400, error, "yes")
        async with client.post(f"{tap.root}/v1/responses", data=b"[]") as second:
            assert await second.read() == b"event: error\n\ndata: {}\n\n"
    assert [request.line.split()[1] for request in requests] == [b"/v1/messages?beta=true", b"/v1/responses"]
    assert requests[0].values(b"x-api-key") == [b"k"]
    assert [request.values(TURN_HEADER.encode()) for request in requests] == [[b"1"], [b"2"]]
    assert [(exchange.path, exchange.is_refused) for exchange in tap.exchanges] == [(MESSAGES, True), (RESPONSES, True)]


def ollama_run(exchanges, window, output):
    model = OllamaServer(allocates=window)
    reply = {"role": "assistant", "content": "word " * 300}
    task = {"role": "user", "content": ollama_runs.TASK}
    for count in range(exchanges):
        model.chat({"model": "m", "messages": [task, *[reply] * count, {"role": "user", "content": "Go on."}]})
    return OllamaRun(output, 1.0, model)


@pytest.mark.parametrize(
    ("exchanges", "window", "output", "is_right"),
    [
        (3, 4_096, "Done after 60 turns.\n", True),
        (30, 4_096, "Done after 60 turns.\n", False),
        (3, 4_096, "Traceback", False),
    ],
    ids=["whole", "cut", "died"],
)
def test_a_turn_that_ollama_cut_or_that_lost_the_task_is_reported(exchanges, window, output, is_right):
    found = ollama_run(exchanges, window, output)
    assert found.is_right is is_right
    assert (found.cuts > 0) == (found.without_task > 0) == (exchanges == 30)
    assert f"{found.cuts} of {exchanges} turns cut" in found.reported


def test_the_agents_of_ollamas_clients_are_there():
    assert all((ollama_runs.HERE / "agents" / client.script).is_file() for client in OLLAMA_CLIENTS)


# Known agents ---------------------------------------------------------------------------------------------------------


NPM = """#!/bin/sh
echo "$1 $2" >> asked
[ "$1 $2" = "view gone@1" ] && exit
[ "$1" = view ] && echo 1 && exit
grep -q gone package.json && { echo 'npm error 404 gone@1 is not in this registry' >&2; exit 1; }
mkdir -p node_modules && touch node_modules/there
"""


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A registry without the package `gone`; yields where packages are installed."""
    (tmp_path / "npm").write_text(NPM)
    (tmp_path / "npm").chmod(0o755)
    (tmp_path / "package.json").write_text(json.dumps({"dependencies": {"there": "1", "gone": "1"}}))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(clients, "HERE", tmp_path)
    monkeypatch.setattr(clients, "INSTALLED", tmp_path / ".e2e")
    clients.reason_of_npm.cache_clear()
    yield tmp_path / ".e2e"
    clients.reason_of_npm.cache_clear()


def test_what_npm_does_not_deliver_is_left_out_with_a_reason(npm):
    packages = npm / "node_modules"
    install_npm(packages / "there")
    with pytest.raises(NotDelivered, match="npm does not deliver node_modules/gone"):
        install_npm(packages / "gone")
    asked = (npm / "asked").read_text().splitlines()
    assert asked[0] == asked[-1] == "install --no-audit"
    assert len(asked) == 4, "once for all clients"


def test_without_npm_every_client_of_it_has_a_reason(npm, monkeypatch):
    monkeypatch.setenv("PATH", str(npm))
    with pytest.raises(NotDelivered, match="npm is not installed"):
        install_npm()


ENDS = (Ended(1, "died"), Ended(2, ""), Ended(130, "", ["agent --daemon"]))


def test_the_conversation_may_end_otherwise_through_run_and_nothing_else():
    assert conversations.judged(ENDS, (Ended(0, "ended well"), *ENDS[1:])) == []
    other = (ENDS[0], Ended(0, ""), Ended(130, "", ["agent --daemon", "agent --helper"]))
    assert conversations.judged(ENDS, other) == [
        "unknown flag: exit 2 directly, 0 through",
        "Ctrl-C: left running: agent --daemon, agent --helper",
    ]
    proxy = "python -P -m proxy serve"
    assert conversations.judged(ENDS, (*ENDS[:2], Ended(130, "", [proxy]))) == [f"Ctrl-C: left running: {proxy}"]
