"""Settings that are read again while requests are under way: by SIGHUP and by `POST /-/reload`."""

import asyncio
import json
import os
import signal
from typing import Any

import httpx
import pytest
from support.upstream.sockets import CHUNKED, LAST_CHUNK, SocketServer, answering, chunk, soon
from support.waiting import PATIENCE_SECONDS, until

CHAT = "POST /v1/chat/completions"
BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "go"}]}).encode()
ANSWER = b'{"choices":[{"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}'
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)


class Serving:
    """An upstream that streams, and continues when released."""

    def __init__(self):
        self.finish = asyncio.Event()

    async def __call__(self, connection):
        while True:
            await connection.asked()
            await connection.send(CHUNKED + chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'))
            await soon(self.finish.wait())
            await connection.send(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)


def operator(proxy):
    """A client on connections of its own."""
    root = f"http://127.0.0.1:{proxy.port}"
    return httpx.AsyncClient(base_url=root, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)


async def reload_by_request(proxy):
    async with operator(proxy) as client:
        answer = await client.post("/-/reload")
    found: dict[str, Any] = answer.json()
    return {"http": answer.status_code, **found}


async def reload_by_signal(proxy):
    os.kill(proxy.process.pid, signal.SIGHUP)
    found: dict[str, Any] = await proxy.logged(event="settings_reloaded")
    return {"http": 200, **found}


async def mode_of(proxy):
    """The settings that serve a new request on its own connection."""
    async with operator(proxy) as client:
        explained = await client.post("/explain", content=BODY)
    mode: str = explained.json()["mode"]
    return mode


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("mode: 'on'\n")
    return file


@pytest.mark.parametrize("reload", [reload_by_request, reload_by_signal])
async def test_a_stream_continues_while_the_next_request_has_the_new_settings(reload, config, start, connect):
    proxy, serving = start("--config", str(config)), Serving()
    async with SocketServer(serving, proxy.upstream_port), connect(proxy) as client:
        client.ask(CHAT, BODY)
        assert (await client.head())[0] == 200
        await client.chunk()
        config.write_text("mode: observe\nserver: {port: 9, max_header_bytes: 9999, max_body_bytes: 2000}\n")
        found = await reload(proxy)
        assert (found["http"], found["status"]) == (200, "reloaded")
        assert found["restart_needed"] == ["server.max_header_bytes"], "the flag beats the file's port"
        assert await mode_of(proxy) == "observe"
        serving.finish.set()
        assert await client.chunk() == b"data: [DONE]\n\n"
        assert await client.chunk() == b""
        client.ask(CHAT, b" " * 3_000)
        assert (await client.answer())[0] == 413, "the same connection has the new settings, too"
    done = await proxy.logged(event="request_done", status=200)
    assert done["outcome"] == "answered"


async def test_invalid_settings_and_those_that_cannot_work_change_nothing_and_are_reported(config, start, tmp_path):
    proxy = start("--config", str(config))
    config.write_text("mode: observe\nserver: {prot: 1}\nupstream: {api_key: sk canary}\n")
    found = await reload_by_request(proxy)
    assert found["http"] == 422
    assert found["error"]["code"] == "settings_refused"
    mistakes = [line.split(":")[0] for line in found["error"]["message"].splitlines()]
    assert mistakes == ["upstream.api_key", "server.prot"]
    assert await mode_of(proxy) == "on"
    reported = await proxy.logged(event="settings_not_reloaded")
    assert reported["problem"] == found["error"]["message"]
    config.write_text("mode: [\n")
    os.kill(proxy.process.pid, signal.SIGHUP)
    await until(lambda: proxy.log().count('"settings_not_reloaded"') == 2)
    assert await mode_of(proxy) == "on"
    assert "canary" not in proxy.log()
    (tmp_path / "file").touch()
    config.write_text(f"mode: observe\nartifacts: {{folder: {tmp_path}/file}}\n")
    found = await reload_by_request(proxy)
    assert (found["http"], await mode_of(proxy)) == (422, "on")
    assert "nothing can be kept in" in found["error"]["message"]


async def test_an_unchanged_reload_is_reported_and_counts_and_decisions_continue(config, start):
    proxy = start("--config", str(config))
    async with SocketServer(answering(WHOLE), proxy.upstream_port), operator(proxy) as client:
        assert (await reload_by_request(proxy))["status"] == "unchanged"
        for mode in ("on", "observe", "on"):
            config.write_text(f"mode: '{mode}'\n")
            await reload_by_request(proxy)
            assert (await client.post("/v1/chat/completions", content=BODY)).status_code == 200
        await until(lambda: proxy.log().count('"request_done"') == 3)  # a response leaves before it is counted
        decisions = (await client.get("/decisions")).json()
        assert len(decisions["decisions"]) == 3
        assert 'context_proxy_requests_total{outcome="answered"} 3.0' in (await client.get("/metrics")).text


async def test_every_worker_reads_them_again_and_so_does_one_that_comes_later(config, start):
    proxy = start("--config", str(config), "--workers", "2")
    workers = await _two_workers(proxy)
    config.write_text("mode: observe\n")
    assert (await reload_by_request(proxy))["workers"] == 2
    await _until(lambda modes: modes == {"observe"}, proxy)
    os.kill(min(workers), signal.SIGKILL)
    await _two_workers(proxy, without=min(workers))
    await _until(lambda modes: modes == {"observe"}, proxy)
    config.write_text("mode: maybe\n")
    os.kill(proxy.process.pid, signal.SIGHUP)
    await proxy.logged(event="settings_not_reloaded")
    assert {await mode_of(proxy) for _ in range(10)} == {"observe"}


async def test_reading_the_settings_again_is_for_the_operator_alone(config, start):
    proxy = start("--config", str(config))
    async with operator(proxy) as client:
        assert (await client.post("/-/reload", headers={"host": "evil.example"})).status_code == 403
        assert (await client.post("/-/reload", headers={"x-forwarded-for": "1.2.3.4"})).status_code == 403
        assert (await client.get("/-/reload")).status_code == 405
        assert "post" in (await client.get("/openapi.json")).json()["paths"]["/-/reload"]
    assert "settings_reloaded" not in proxy.log()


async def _workers(proxy):
    found = set()
    async with operator(proxy) as client:
        for _ in range(20):  # on a connection of its own, so that any worker may take it
            answer = await client.get("/decisions?limit=1", headers={"connection": "close"})
            found.add(answer.json()["worker"]["pid"])
    return found


async def _two_workers(proxy, without=0):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found := await _workers(proxy)) < 2 or without in found:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return found


async def _until(holds, proxy):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds({await mode_of(proxy) for _ in range(10)}):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
