"""A proxy with a TLS upstream, and long bodies, which are written in pieces, with and without TLS."""

import asyncio
import itertools
import json
import ssl
from pathlib import Path

import pytest
import support
from support.upstream.sockets import CHUNKED, LAST_CHUNK, SocketServer, chunk

CERTIFICATE = Path(support.__file__).parent / "certificates" / "loopback.pem"
"""Self-signed certificate of 127.0.0.1 with its key, made for these tests and public."""
CHAT = "POST /v1/chat/completions"
BODY = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
EVENTS = [b'data: {"n": %d, "choices": [{"delta": {"content": "%s"}}]}\n\n' % (n, b"x" * n * 997) for n in range(20)]
END = b"data: [DONE]\n\n"


@pytest.fixture
def tls(monkeypatch):
    """What a server has whose certificate the proxy trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_each_turn_of_a_long_conversation_arrives_as_it_was_sent(scheme, start, connect, tls):
    arrived: list[bytes] = []

    async def script(connection):
        while True:
            arrived.append((await connection.asked()).body)
            await connection.send(CHUNKED + chunk(EVENTS[1] + END) + LAST_CHUNK)

    messages = [{"role": "user", "content": f"{turn} " * (300_000 if not turn else 20_000)} for turn in range(6)]
    bodies = [json.dumps({"model": "m", "messages": messages[: turn + 1]}).encode() for turn in range(len(messages))]
    async with SocketServer(script, tls=tls if scheme == "https" else None) as upstream:
        proxy = start("--upstream", f"{scheme}://127.0.0.1:{upstream.port}/v1")
        async with connect(proxy) as client:
            for body in bodies:
                client.ask(CHAT, body)
                assert (await client.answer())[0] == 200
    assert arrived == bodies


@pytest.mark.parametrize("is_lumped", [False, True])
async def test_streams_pass_event_by_event_and_their_connection_is_used_again(is_lumped, start, connect, tls):
    told_so_far: asyncio.Queue[int] = asyncio.Queue()
    answered: list[int] = []

    async def script(connection):
        for number in itertools.count():
            await connection.asked()
            answered.append(number)
            await connection.send(CHUNKED)
            if is_lumped:
                await connection.send(b"".join(map(chunk, EVENTS)))
            else:
                for sent in range(len(EVENTS)):
                    await connection.send(chunk(EVENTS[sent]))
                    while sent and await told_so_far.get() < sum(map(len, EVENTS[: sent + 1])):
                        pass  # the first event is the role alone, which waits for words
            await connection.send(chunk(END) + LAST_CHUNK)

    async with SocketServer(script, tls=tls) as upstream:
        proxy = start("--upstream", f"https://127.0.0.1:{upstream.port}/v1")
        async with connect(proxy) as client:
            for _ in range(3):
                client.ask(CHAT, BODY)
                assert (await client.head())[0] == 200
                reported = b""
                while piece := await client.chunk():
                    reported += piece
                    told_so_far.put_nowait(len(reported))
                assert reported == b"".join(EVENTS) + END
                while not told_so_far.empty():
                    told_so_far.get_nowait()
    assert max(answered) > 0, "on a connection that was used; a question for models may be under way on another"
