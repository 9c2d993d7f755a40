"""How requests end when a side disconnects, dies or falls silent, or the proxy is stopped."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from support.sdks import openai_python
from support.upstream.sockets import CHUNKED, LAST_CHUNK, OK, SocketServer, answering, chunk, soon
from support.waiting import PATIENCE_SECONDS, until

CHAT = "POST /v1/chat/completions"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}'
BEGUN = CHUNKED + chunk(b"data: 1\n\n")


async def first_of(*awaited):
    """The number of the first that is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [task.done() for task in tasks].index(True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Serving:
    """An upstream that begins streams, says what happens to them, and continues when released."""

    def __init__(self, begin=BEGUN):
        self._begin = begin
        self.taken = asyncio.Event()
        self.closed = asyncio.Event()
        self.finish = asyncio.Event()
        self.die = asyncio.Event()

    async def __call__(self, connection):
        request = await connection.head()
        if request.line.startswith(b"GET /v1/models "):  # the proxy's own question
            await connection.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return
        if self._begin:
            await connection.send(self._begin)
        self.taken.set()
        if await first_of(connection.until_closed(), self.finish.wait(), self.die.wait()) == 0:
            self.closed.set()
        if self.die.is_set():
            connection.reset()
        elif self.finish.is_set():
            await connection.send(chunk(b"data: [DONE]\n\n") + LAST_CHUNK)


@pytest.mark.parametrize("begin", [b"", BEGUN], ids=["before the head", "in the middle"])
@pytest.mark.parametrize("line", [CHAT, "POST /v1/completions", "GET /v1/batches"])
async def test_a_client_that_leaves_frees_the_upstream_at_once(line, begin, proxy, connect):
    serving, name = Serving(begin), f"left-{len(begin)}"
    async with SocketServer(serving, proxy.upstream_port), connect(proxy) as client:
        client.ask(line, None if line.startswith("GET") else BODY, f"x-request-id: {name}")
        if begin:
            await client.head()
            assert await client.chunk() == b"data: 1\n\n"
        await soon(serving.taken.wait())
        client.writer.close()
        await soon(serving.closed.wait())
    if line == CHAT:
        assert (await proxy.logged(event="request_done", request_id=name))["outcome"] == "client_left"


@pytest.mark.parametrize("begin", [b"", BEGUN], ids=["before the head", "in the middle"])
@pytest.mark.parametrize("framing", ["content-length: 100", "transfer-encoding: chunked"])
async def test_a_client_that_leaves_in_the_middle_of_its_upload_frees_the_upstream_at_once(
    framing, begin, proxy, connect
):
    serving = Serving(begin)
    async with SocketServer(serving, proxy.upstream_port), connect(proxy) as client:
        client.ask("POST /v1/files", None, framing)
        client.writer.write(chunk(b"half"))
        if begin:
            await client.head()
        await soon(serving.taken.wait())
        client.writer.close()
        await soon(serving.closed.wait())


async def test_an_upstream_that_dies_in_the_middle_breaks_the_stream_and_the_log_says_why(proxy, client):
    serving = Serving()
    async with SocketServer(serving, proxy.upstream_port):
        client.ask(CHAT, BODY, "x-request-id: died")
        await client.head()
        assert await client.chunk() == b"data: 1\n\n"
        serving.die.set()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.chunk()
    line = await proxy.logged(event="request_done", request_id="died")
    assert (line["outcome"], line["status"]) == ("upstream_unreachable", 200)
    assert "broke off its response" in line["problem"]


async def test_an_upstream_that_is_silent_is_a_504_before_the_first_byte_and_a_broken_stream_after(start, connect):
    proxy = start(UPSTREAM__FIRST_BYTE_TIMEOUT_SECONDS="0.2", UPSTREAM__IDLE_TIMEOUT_SECONDS="0.2")
    silent, stalling = Serving(begin=b""), Serving()
    async with connect(proxy) as client:
        async with SocketServer(silent, proxy.upstream_port):
            client.ask(CHAT, BODY)
            status, _, answer = await client.answer()
            assert (status, json.loads(answer)["error"]["code"]) == (504, "upstream_timeout")
            await soon(silent.closed.wait())
        async with SocketServer(stalling, proxy.upstream_port):
            client.ask(CHAT, BODY, "x-request-id: stalled")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.answer()
            await soon(stalling.closed.wait())
    assert (await proxy.logged(event="request_done", request_id="stalled"))["outcome"] == "upstream_timeout"


ANSWER = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi."},"finish_reason":null}]}\n\n'
)
FINAL = b'data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}\n\n'
DONE = b"data: [DONE]\n\n"


class Lingering:
    """An upstream that ends the body of each stream only when released, as gateways do that have to write down
    first what it cost."""

    def __init__(self, *reported):
        self._chunks = reported
        self.served: list[int] = []
        """The connection of each request."""
        self.finish = asyncio.Event()
        self.closed = asyncio.Semaphore(0)
        """Released for each connection that the proxy closed."""

    async def __call__(self, connection):
        while True:
            await connection.asked()
            self.served.append(id(connection))
            await connection.send(CHUNKED + b"".join(map(chunk, self._chunks)))
            if await first_of(connection.reader.read(1), self.finish.wait()) == 0:
                self.closed.release()
                return
            await connection.send(LAST_CHUNK)


async def _took(client, *reported):
    """The client takes these pieces, and hangs up."""
    await client.head()
    taken = b""
    while taken != b"".join(reported):
        taken += await client.chunk()
    client.writer.close()


@pytest.mark.parametrize("mode", ["on", "observe", "off"])
@pytest.mark.parametrize(
    "reported",
    [(ANSWER, FINAL, USAGE, DONE), (ANSWER, FINAL, DONE[:9], DONE[9:]), (ANSWER, FINAL, USAGE)],
    ids=["done", "done in two pieces", "final chunk and usage"],
)
async def test_a_client_that_hangs_up_with_the_whole_answer_was_answered(reported, mode, proxy, connect):
    lingering, name = Lingering(*reported), f"hung-up-{mode}-{len(b''.join(reported))}"
    async with SocketServer(lingering, proxy.upstream_port):
        for number in range(2):
            async with connect(proxy) as client:
                client.ask(CHAT, BODY, f"x-request-id: {name}-{number}", f"x-context-proxy-mode: {mode}")
                await _took(client, *reported)
            # Before the upstream has ended its body.
            done = await proxy.logged(event="request_done", request_id=f"{name}-{number}")
            assert (done["outcome"], done["status"], done["level"]) == ("answered", 200, "info")
            assert "problem" not in done
            lingering.finish.set()
            await asyncio.sleep(0)
        assert len(lingering.served) == 2


async def test_an_upstream_that_never_ends_its_body_is_let_go_soon_which_is_no_failure_on_any_path(proxy, connect):
    lingering = Lingering(ANSWER, DONE)
    async with (
        SocketServer(lingering, proxy.upstream_port),
        connect(proxy) as client,
        connect(proxy) as completing,
    ):
        client.ask(CHAT, BODY)
        completing.ask("POST /v1/completions", BODY, "x-request-id: completions")
        for one in (client, completing):
            await _took(one, ANSWER, DONE)
        for _ in range(2):
            await soon(lingering.closed.acquire())
    assert not [line for line in proxy.log().splitlines() if '"completions"' in line and "passthrough_failed" in line]


async def test_a_client_that_hangs_up_before_the_end_has_left(proxy, connect):
    for number, reported in enumerate([(ANSWER,), (ANSWER, FINAL), (ANSWER, USAGE)]):
        lingering = Lingering(*reported)
        async with SocketServer(lingering, proxy.upstream_port), connect(proxy) as client:
            client.ask(CHAT, BODY, f"x-request-id: too-early-{number}")
            await _took(client, *reported)
            await soon(lingering.closed.acquire())
        done = await proxy.logged(event="request_done", request_id=f"too-early-{number}")
        assert done["outcome"] == "client_left"


async def test_an_upstream_that_breaks_after_the_end_of_its_answer_has_answered(proxy, connect):
    serving = Serving(CHUNKED + chunk(ANSWER + DONE))
    async with SocketServer(serving, proxy.upstream_port), connect(proxy) as client:
        client.ask(CHAT, BODY, "x-request-id: broke-late")
        await client.head()
        assert await client.chunk() == ANSWER + DONE
        serving.die.set()
        assert await client.chunk() == b""  # a whole body
    assert (await proxy.logged(event="request_done", request_id="broke-late"))["outcome"] == "answered"


async def test_openai_python_hangs_up_after_the_end_and_was_answered(proxy):
    messages = [{"role": "user", "content": "hi"}]
    async with (
        SocketServer(Lingering(ANSWER, FINAL, USAGE, DONE), proxy.upstream_port),
        openai_python().AsyncOpenAI(base_url=proxy.base_url, api_key="sk-test", max_retries=0) as client,
    ):
        for number in range(10):
            name = {"x-request-id": f"openai-{number}"}
            stream = await client.chat.completions.create(model="m", messages=messages, stream=True, extra_headers=name)
            assert [event.usage.prompt_tokens async for event in stream if event.usage] == [9]
            await stream.close()
            done = await proxy.logged(event="request_done", request_id=f"openai-{number}")
            assert done["outcome"] == "answered"


@contextlib.asynccontextmanager
async def streaming(start, connect, *flags, **settings):
    """A proxy of its own, and a client that has the first event of a stream."""
    proxy, serving = await start(*flags, **{"SERVER__SHUTDOWN_GRACE_SECONDS": "100", **settings}), Serving()
    async with SocketServer(serving, proxy.upstream_port), connect(proxy) as client:
        client.ask(CHAT, BODY, "x-request-id: streaming")
        await client.head()
        await client.chunk()
        yield proxy, serving, client


async def _finished(client, serving):
    """The client gets the rest of it."""
    serving.finish.set()
    assert await client.chunk() == b"data: [DONE]\n\n"
    assert await client.chunk() == b""


async def _until_nobody_listens(proxy):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            except ConnectionError:
                return
            writer.close()
            await asyncio.sleep(0.01)


async def _ended(proxy):
    return await asyncio.wait_for(asyncio.to_thread(proxy.process.wait), PATIENCE_SECONDS)


async def a_running_stream_may_end_within_the_grace(start, connect, number=signal.SIGTERM, status=-signal.SIGTERM):
    async with streaming(start, connect) as (proxy, serving, client):
        proxy.process.send_signal(number)
        await _until_nobody_listens(proxy)
        await _finished(client, serving)
        assert await _ended(proxy) == status


async def so_it_may_after_control_c(start, connect):
    await a_running_stream_may_end_within_the_grace(start, connect, signal.SIGINT, 130)


async def a_stream_is_cut_when_the_grace_is_over(start, connect):
    async with streaming(start, connect, SERVER__SHUTDOWN_GRACE_SECONDS="1") as (proxy, serving, client):
        proxy.process.send_signal(signal.SIGTERM)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.chunk()
        await soon(serving.closed.wait())
        await _ended(proxy)
    assert (await proxy.logged(event="request_done", request_id="streaming"))["outcome"] == "server_stopping"


async def two_workers_share_the_port_and_end_together(start, connect):
    proxy = await start("--workers", "2")

    async with SocketServer(answering(OK), proxy.upstream_port):
        for _ in range(6):
            async with connect(proxy) as client:
                client.ask(CHAT, BODY)
                assert (await client.answer())[2] == b"ok"
    members = _group(proxy.process.pid)
    assert len(members) >= 3
    proxy.process.send_signal(signal.SIGTERM)
    await _ended(proxy)
    await until(lambda: _group(proxy.process.pid) == [])


async def workers_that_end_take_no_new_connections_while_a_stream_runs(start, connect):
    async with streaming(start, connect, "--workers", "2") as (proxy, serving, client):
        proxy.process.send_signal(signal.SIGTERM)
        await _until_nobody_listens(proxy)
        await _finished(client, serving)
        await _ended(proxy)


async def busy_connections_are_told_that_their_next_answer_is_the_last(start, connect):
    proxy, received = await start(SERVER__SHUTDOWN_GRACE_SECONDS="100"), asyncio.Semaphore(0)
    ended: list[bytes] = []

    async def busy():
        async with connect(proxy) as client:
            while True:
                client.ask(CHAT, BODY)
                _, headers, _ = await client.answer()  # raises when it is reset
                received.release()
                if headers.get(b"connection") == b"close":
                    ended.append(await client.reader.read())
                    return

    async with SocketServer(answering(OK), proxy.upstream_port), asyncio.TaskGroup() as clients:
        for _ in range(16):
            clients.create_task(busy())
        for _ in range(100):
            await soon(received.acquire())
        proxy.process.send_signal(signal.SIGTERM)
    assert ended == [b""] * 16
    assert await _ended(proxy) == -signal.SIGTERM


async def a_page_that_listens_does_not_hold_up_the_end(start, connect):
    proxy = await start(SERVER__SHUTDOWN_GRACE_SECONDS="600", SERVER__HOST_NAMES='["proxy"]')
    async with connect(proxy) as listening:
        listening.ask("GET /events")
        await listening.head()
        assert await listening.chunk() == b"retry: 1000\n\n"
        proxy.process.send_signal(signal.SIGTERM)
        assert await listening.chunk() == b""
        assert await _ended(proxy) == -signal.SIGTERM


async def an_idle_connection_may_ask_once_more_and_does_not_hold_up_the_end(start, connect):
    proxy, serving = await start(SERVER__SHUTDOWN_GRACE_SECONDS="100"), Serving()
    async with (
        SocketServer(serving, proxy.upstream_port),
        connect(proxy) as asking,
        connect(proxy) as silent,
        connect(proxy) as client,
    ):
        client.ask(CHAT, BODY)
        await client.head()
        await client.chunk()  # by now the others are accepted, too
        proxy.process.send_signal(signal.SIGTERM)
        await _until_nobody_listens(proxy)
        asking.ask("GET /healthz")
        status, headers, _ = await asking.answer()
        assert (status, headers[b"connection"]) == (200, b"close")
        await soon(silent.reader.read())
        await _finished(client, serving)
        client.ask("GET /healthz")
        assert (await client.answer())[1][b"connection"] == b"close"
        await _ended(proxy)


async def a_hangup_of_the_terminal_ends_no_stream(start, connect, workers=1):
    async with streaming(start, connect, "--workers", str(workers)) as (proxy, serving, client):
        os.killpg(proxy.process.pid, signal.SIGHUP)
        await asyncio.sleep(1)  # the parent of workers looks at its signals twice a second
        serving.finish.set()
        assert await client.chunk() == b"data: [DONE]\n\n"
        client.ask("GET /healthz")
        assert await client.chunk() == b""
        assert (await client.answer())[0] == 200


async def nor_does_it_of_two_workers(start, connect):
    await a_hangup_of_the_terminal_ends_no_stream(start, connect, workers=2)


async def workers_end_when_their_parent_was_killed(start, connect):
    async with streaming(start, connect, "--workers", "2") as (proxy, serving, client):
        proxy.process.kill()
        await _until_nobody_listens(proxy)
        await _finished(client, serving)
    await until(lambda: _group(proxy.process.pid) == [])


SIDE_BY_SIDE = [
    (
        a_running_stream_may_end_within_the_grace,
        so_it_may_after_control_c,
        a_stream_is_cut_when_the_grace_is_over,
        an_idle_connection_may_ask_once_more_and_does_not_hold_up_the_end,
    ),
    (
        busy_connections_are_told_that_their_next_answer_is_the_last,
        a_page_that_listens_does_not_hold_up_the_end,
        a_hangup_of_the_terminal_ends_no_stream,
    ),
    (two_workers_share_the_port_and_end_together, workers_that_end_take_no_new_connections_while_a_stream_runs),
    (nor_does_it_of_two_workers, workers_end_when_their_parent_was_killed),
]
"""Each mostly waits, for a proxy of its own."""


@pytest.mark.parametrize("stories", SIDE_BY_SIDE, ids=lambda stories: " and ".join(story.__name__ for story in stories))
async def test_the_end(stories, start, connect):
    await asyncio.gather(*(story(partial(asyncio.to_thread, start), connect) for story in stories))


async def test_a_port_that_is_taken_is_reported_in_one_line(proxy):
    command = [sys.executable, "-m", "proxy", "serve", "--upstream", proxy.base_url, "--port", str(proxy.port)]
    second = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    _, reported = await asyncio.wait_for(second.communicate(), PATIENCE_SECONDS)
    assert second.returncode == 1
    where = f"127.0.0.1 port {proxy.port} (server.host, server.port)"
    assert reported.decode().splitlines() == [f"cannot listen at {where}: Address already in use"]


def _group(leader):
    """The processes of a group that live."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z" and os.path.basename(folder).isdigit():
                found.append(int(folder.name))
    return found
