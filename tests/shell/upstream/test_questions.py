"""Questions on real sockets: what is sent, what counts as an answer, and which words a failure gets."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import pytest
from support.picture_server import CERTIFICATE
from support.scripted_upstream import OK, Connection, Request, Script, ScriptedUpstream, answering

from proxy.shell.upstream import questions as module
from proxy.shell.upstream.questions import MAX_ANSWER_BYTES, NoAnswer, asking

KEY = {b"authorization": b"Bearer sk-mine"}


def whole(body: bytes, *headers: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", f"content-length: {len(body)}", *headers, "", ""])
    return head.encode() + body


async def ask(script: Script, key: Mapping[bytes, bytes] = KEY) -> bytes:
    """What a server answers to a question for its list."""
    async with ScriptedUpstream(script) as upstream, asking(upstream.base_url, key) as questions:
        return await questions.get(f"{upstream.base_url}/models")


async def refused(script: Script, key: Mapping[bytes, bytes] = KEY) -> tuple[str, int | None]:
    """Why there is no answer, and the status; never with the key in it."""
    with pytest.raises(NoAnswer) as raised:
        await ask(script, key)
    assert "sk-mine" not in str(raised.value)
    return str(raised.value), raised.value.status


async def test_a_question_carries_the_key_and_what_is_wanted() -> None:
    seen: list[Request] = []
    assert await ask(answering(OK, seen=seen)) == b"ok"
    assert seen[0].line == b"GET /v1/models HTTP/1.1"
    assert seen[0].values(b"authorization") == [b"Bearer sk-mine"]
    assert seen[0].values(b"accept") == [b"application/json"]


async def test_what_is_posted_is_json() -> None:
    seen: list[Request] = []
    async with ScriptedUpstream(answering(OK, seen=seen)) as upstream, asking(upstream.base_url, {}) as questions:
        assert await questions.maybe_post(f"{upstream.base_url}/show", {"model": "m"}) == b"ok"
    assert (json.loads(seen[0].body), seen[0].values(b"content-type")) == ({"model": "m"}, [b"application/json"])


async def test_what_may_be_missing_is_empty() -> None:
    gone = b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n"
    async with ScriptedUpstream(answering(gone)) as upstream, asking(upstream.base_url, {}) as questions:
        assert await questions.maybe(f"{upstream.base_url}/props") == b""
        assert await questions.maybe_post(f"{upstream.base_url}/show", {}) == b""


async def test_a_compressed_answer_is_unpacked() -> None:
    assert await ask(answering(whole(gzip.compress(b"[1]" * 9), "content-encoding: gzip"))) == b"[1]" * 9


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_only_a_200_is_an_answer(status: int) -> None:
    head = b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\n{}" % status
    assert await refused(answering(head)) == (f"it answered {status}", status)


async def test_a_redirect_is_not_followed() -> None:
    seen: list[Request] = []
    head = b"HTTP/1.1 307 X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    assert await refused(answering(head, OK, seen=seen)) == ("it answered 307", 307)
    assert len(seen) == 1


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 100)
    assert MAX_ANSWER_BYTES > 100
    assert await refused(answering(whole(b" " * 101))) == ("its answer is longer than 100 bytes", 200)


async def test_no_answer_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
        await connection.until_closed()

    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.05)
    assert await refused(script) == ("no answer within 0.05 s", None)


async def test_an_answer_that_breaks_off_is_none() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsk-mine")
        connection.reset()

    _, status = await refused(script)
    assert status is None


async def test_nobody_at_the_address_is_told_in_words_of_the_operating_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with asking(f"http://127.0.0.1:{port}", KEY) as questions:
        with pytest.raises(NoAnswer, match="Connect"):
            await questions.get(f"http://127.0.0.1:{port}/models")


async def test_a_key_of_several_lines_is_not_sent() -> None:
    seen: list[Request] = []
    await refused(answering(OK, seen=seen), {b"authorization": b"Bearer sk-mine\r\nx-more: 1"})
    assert seen == []


async def test_a_certificate_that_nobody_trusts_ends_the_question() -> None:
    asked: list[Any] = []

    async def script(connection: Connection) -> None:
        asked.append(await connection.request())

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    async with ScriptedUpstream(script, tls=context) as upstream:
        base_url = upstream.base_url.replace("http:", "https:")
        async with asking(base_url, KEY) as questions:
            with pytest.raises(NoAnswer):
                await questions.get(f"{base_url}/models")
    assert asked == []


async def test_the_environments_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []
    async with ScriptedUpstream(answering(OK, seen=seen)) as scripted:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, scripted.base_url.removesuffix("/v1"))
        async with asking("http://model.invalid/v1", {}) as questions:
            assert await questions.get("http://model.invalid/v1/models") == b"ok"
    assert [request.line for request in seen] == [b"GET http://model.invalid/v1/models HTTP/1.1"]
