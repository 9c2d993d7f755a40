"""One conversation, each turn by another process: the upstream gets what one process alone would have sent."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.journey import call, long_text, result
from support.live_proxy import running, running_together
from support.upstream import listening, model_server
from support.waiting import PATIENCE_SECONDS, until, wait_until

from tools.ports import held_port

ROOT = Path(__file__).resolve().parents[2]
WINDOW = 8_000
TURNS = 24
SETTINGS = {
    "MODELS": json.dumps([{"match": "*", "context_window": WINDOW, "tokenizer": "o200k_base"}]),
    "ARTIFACTS__AGENT_PATH": "/artifacts",  # is part of what models read, as is the next
    "ARTIFACTS__PUBLIC_URL": "http://proxy.example",
    "LEARNING__ENABLED": "false",  # a lesson moves a cut once, and would not come at the same turn in both runs
}
HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-one"}


def conversation():
    """An agent's requests, turn by turn: results that are cut at arrival, and in the end five windows of them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Why is build 4711 red?"}]
    bodies = []
    for turn in range(TURNS):
        bodies.append(json.dumps({"model": "m", "messages": messages}).encode())
        lines = 2_500 if turn % 6 == 1 else 60 + turn % 7 * 20
        messages = [*messages, call(turn, "read_log"), result(turn, long_text(lines, f"build-{turn}"))]
    return bodies


def ask(base_url, body):
    """On a connection of its own, so that any worker may take it."""
    with httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as client:
        return client.post(f"{base_url}/chat/completions", content=body, headers=HEADERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("replicas")


@pytest.fixture(scope="module")
def upstream():
    return model_server(WINDOW)


@pytest.fixture(scope="module")
def upstream_port(upstream):
    with listening(upstream) as url:
        yield int(url.removesuffix("/v1").rpartition(":")[2])


@pytest.fixture(scope="module")
def sent(upstream):
    """Plays the conversation against these proxies in turns; what reached the upstream."""

    def play(base_urls):
        upstream.sent.clear()
        for turn, body in enumerate(conversation()):
            answer = ask(base_urls[turn % len(base_urls)], body)
            assert answer.status_code == 200, f"turn {turn}: {answer.text}"
            assert answer.headers["x-context-proxy-attempts"] == "1"
        bodies = [received.body for received in upstream.sent]
        assert sum(before != after for before, after in zip(conversation(), bodies, strict=True)) > TURNS / 2
        return bodies

    return play


@pytest.fixture(scope="module")
def alone(sent, upstream_port, folder):
    """Bodies that a single replica sends."""
    with running(folder / "alone", upstream_port=upstream_port, **SETTINGS) as proxy:
        return sent([proxy.base_url])


@pytest.fixture(scope="module")
def replicas(upstream_port, folder):
    """Three that share nothing but their settings."""
    folders = [folder / f"replica-{number}" for number in range(3)]
    with running_together(folders, upstream_port=upstream_port, **SETTINGS) as found:
        yield found


def test_three_replicas_send_what_one_would_send(sent, alone, replicas):
    assert sent([replica.base_url for replica in replicas]) == alone


def test_three_replicas_behind_nginx_send_what_one_would_send(sent, alone, replicas, folder):
    before = _done(replicas)
    with nginx_before([replica.port for replica in replicas], folder) as base_url:
        assert sent([base_url]) == alone
    assert _came_since(before, replicas, TURNS) == [TURNS / 3] * 3


def test_a_conversation_stays_on_a_replica_with_the_nginx_setting(replicas, folder, monkeypatch):
    used = set()
    with nginx_before([replica.port for replica in replicas], folder, sticky=True) as base_url:
        for number in range(100):  # a hash of the ports chooses among the replicas: it may be one for eight of them
            before = _done(replicas)
            monkeypatch.setitem(HEADERS, "x-claude-code-session-id", f"session-{number}")
            assert [ask(base_url, body).status_code for body in conversation()[:3]] == [200] * 3
            came = _came_since(before, replicas, 3)
            assert sorted(came) == [0, 0, 3]
            used.add(came.index(3))
            if number >= 7 and len(used) > 1:
                break
    assert len(used) > 1


def test_two_workers_send_what_one_process_would_send(alone, upstream, upstream_port, folder):
    with running(folder / "workers", "--workers", "2", upstream_port=upstream_port, **SETTINGS) as proxy:
        workers = _workers_of(proxy.process.pid)
        upstream.sent.clear()
        for turn, body in enumerate(conversation()):
            with _stopped(workers[turn % 2]):  # so that the other one takes it
                assert ask(proxy.base_url, body).status_code == 200
        url = proxy.base_url.replace("/v1", "/metrics")
        counted = f'context_proxy_requests_total{{outcome="answered"}} {TURNS}.0'
        idle = "context_proxy_running_requests 0.0"

        def is_told():
            """A response leaves before it is counted, and each worker says once a second what it has under way."""
            found = httpx.get(url, trust_env=False, timeout=PATIENCE_SECONDS).text
            return counted in found and idle in found

        asyncio.run(until(is_told))
        for silent in workers:
            with _stopped(silent):
                reported = httpx.get(url, trust_env=False, timeout=PATIENCE_SECONDS).text
            assert counted in reported, "of both workers"
            assert idle in reported
    assert [received.body for received in upstream.sent] == alone


def _came_since(before, replicas, requests):
    """How many of these requests each replica has served: an answer arrives before its log line."""
    wait_until(lambda: sum(_done(replicas)) >= sum(before) + requests)
    return [now - then for now, then in zip(_done(replicas), before, strict=True)]


def _done(replicas):
    """How many requests each has answered."""
    return [replica.log().count('"request_done"') for replica in replicas]


def _workers_of(pid):
    """Both, once they are there: one alone can serve already."""

    def found():
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]

    wait_until(lambda: len(found()) == 2)
    return found()


@contextlib.contextmanager
def _stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        # The signal is on its way when `kill` returns, and the process might take one more connection. T: stopped.
        wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def nginx_before(ports, folder, *, sticky=False):
    """Run nginx with the configuration that deploy/ ships, save for addresses and places; its base URL. `sticky`: with
    the line that keeps a conversation on a replica."""
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    with held_port() as port:
        text = (ROOT / "deploy" / "nginx.conf").read_text()
        text = re.sub(r"replica-(\d):8787", lambda found: f"127.0.0.1:{ports[int(found[1]) - 1]}", text)
        text = text.replace("listen 8780", f"listen 127.0.0.1:{port}")
        text = text.replace("worker_processes auto", "worker_processes 1")
        if sticky:
            text = text.replace("# hash ", "hash ")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
        text = text.replace("http {", f"http {{ access_log off; {places}")
        (folder / "nginx.conf").write_text(f"daemon off; pid {folder}/nginx.pid; error_log stderr;\n{text}")

        def accepts():
            with socket.socket() as tried:
                return tried.connect_ex(("127.0.0.1", port)) == 0

        process = subprocess.Popen([nginx, "-p", str(folder), "-e", "stderr", "-c", "nginx.conf"])
        try:
            wait_until(lambda: accepts() or process.poll() is not None)
            assert process.poll() is None, "nginx did not start"
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
