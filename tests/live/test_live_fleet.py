"""Three replicas over one bucket and one server of shared learning, behind nginx: what happens to a conversation when
parts of that are killed."""

import contextlib
import json
import os
import re
import signal
from typing import Any

import httpx
import pytest
from support.buckets import new_bucket
from support.journey import call, long_text, result
from support.live_proxy import running_together
from support.moto_server import moto_server
from support.state_server import StateServer, needs_state_server
from support.upstream import listening, model_server
from support.waiting import PATIENCE_SECONDS, until

from live.test_live_replicas import nginx_before

WINDOW = 8_000
KEY = "sk-of-the-fleet"


class Fleet:
    """The replicas, and a client that talks to nginx alone."""

    def __init__(self, base_url, replicas, upstream, state):
        self.base_url = base_url
        self.replicas = replicas
        self.upstream = upstream
        self.state = state
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Why is build 4711 red?"}]
        self.client = httpx.Client(
            trust_env=False, timeout=PATIENCE_SECONDS, headers={"authorization": f"Bearer {KEY}"}
        )

    def turns(self, count):
        """So many turns of one conversation, in which every third result is long."""
        answers = []
        for _ in range(count):
            number = len(self.messages) // 2
            text = long_text(2_500 if number % 3 == 1 else 60, f"build-{number}")
            self.messages += [call(number, "read_log"), result(number, text)]
            body = {"model": "m", "messages": self.messages}
            answers.append(self.client.post(f"{self.base_url}/chat/completions", json=body).raise_for_status())
        return answers

    def shown(self):
        """Ids of the requests that the replicas list together, each what it has served, as its dashboard does."""
        roots = [one.base_url.removesuffix("/v1") for one in self.replicas]
        return [one["request_id"] for root in roots for one in self.client.get(f"{root}/decisions").json()["decisions"]]

    async def show(self, answers):
        """Wait until they list all these requests, each of them once: an answer arrives before it is kept."""
        ids = sorted(answer.headers["x-request-id"] for answer in answers)
        await until(lambda: sorted(self.shown()) == ids)

    def read_back(self):
        """Everything that was cut is there, whole, whichever replica is asked."""
        names = set(re.findall(rb"tool_read_log_[0-9a-f]{16}\.txt", b"".join(one.body for one in self.upstream.sent)))
        texts = {message["content"] for message in self.messages if message["role"] == "tool"}
        assert len(names) > 3
        for name in names:
            answer = self.client.get(self.base_url.replace("/v1", f"/artifacts/{name.decode()}"))
            assert answer.status_code == 200
            assert answer.text in texts


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    state, upstream = StateServer(tmp_path), model_server(WINDOW)
    with contextlib.ExitStack() as stack:
        url = new_bucket(stack.enter_context(moto_server("s3")), tmp_path.name, monkeypatch)
        state.start()
        stack.callback(state.stop)
        upstream_port = int(stack.enter_context(listening(upstream)).removesuffix("/v1").rpartition(":")[2])
        settings = {
            "ARTIFACTS__URL": f"{url}/kept",
            "ARTIFACTS__PUBLIC_URL": "http://proxies.example",
            "STATE__URL": state.url,
            "SERVER__SECRET": "5e" * 32,
        }
        replicas = stack.enter_context(
            running_together(
                [tmp_path / f"replica-{number}" for number in range(3)],
                upstream_port=upstream_port,
                program=("-m", "tests.support.hasty_proxy"),
                **settings,
            )
        )
        base_url = stack.enter_context(nginx_before([replica.port for replica in replicas], tmp_path))
        found = Fleet(base_url, replicas, upstream, state)
        stack.callback(found.client.close)
        yield found


@needs_state_server
async def test_a_conversation_is_unharmed_by_the_death_of_a_replica_and_of_the_shared_state(fleet):
    """The window is not configured: a refusal teaches it to one replica, which shares it with the others."""
    started = fleet.turns(4)
    for replica in fleet.replicas[1:]:
        assert replica.process.poll() is None

    await fleet.show(started)
    os.killpg(fleet.replicas[0].process.pid, signal.SIGKILL)
    fleet.replicas[0].process.wait()
    without_a_replica = fleet.turns(4)

    fleet.state.stop()
    without_state = fleet.turns(4)
    for replica in fleet.replicas[1:]:
        assert (await replica.logged(event="state_lost"))["reason"]
        ready = fleet.client.get(f"{replica.base_url.removesuffix('/v1')}/readyz")
        assert (ready.status_code, set(ready.json().get("unavailable", {}))) == (200, {"state"})

    fleet.state.start()
    for replica in fleet.replicas[1:]:
        await replica.logged(event="state_found")
    again = fleet.turns(4)
    fleet.read_back()

    answers = [*started, *without_a_replica, *without_state, *again]
    refused = sum(int(answer.headers["x-context-proxy-attempts"]) - 1 for answer in answers)
    assert refused <= len(fleet.replicas), "at most one refusal for each replica, and the client sees none"
    bodies = [json.loads(received.body)["messages"] for received in fleet.upstream.sent]
    assert all(body[0]["content"] == "Why is build 4711 red?" for body in bodies)
    assert KEY not in "".join(replica.log() for replica in fleet.replicas)
