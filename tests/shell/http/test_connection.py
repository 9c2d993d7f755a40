"""A client's connection: how its loss is reported, and how a response is written to it."""

import asyncio

import pytest
import uvicorn
from support.noting_socket import NotingSocket
from uvicorn.server import ServerState

from proxy.shell.http.connection import Connection, Connections

REQUEST = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}


async def _turns(count=6):
    for _ in range(count):
        await asyncio.sleep(0)


def _connected(app):
    """A connection that the given application serves, and its socket."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", interface="asgi3", ws="none")
    config.load()
    limits = Connections(max_head_bytes=8192, head_seconds=30, max_connections=10)
    connection = Connection(limits, config, ServerState(), {})
    socket = NotingSocket()
    connection.connection_made(socket)
    return connection, socket


async def _served(app, request=REQUEST):
    """The same, after a request that the application has had time for."""
    connection, socket = _connected(app)
    connection.data_received(request)
    await _turns()
    return connection, socket


@pytest.mark.parametrize(("version", "is_asked_on"), [(b"1.0", False), (b"1.1", True)])
async def test_only_a_client_that_knows_it_gets_leave_to_send_its_body(version, is_asked_on):
    bodies = list[bytes]()

    async def app(_, receive, send):
        bodies.append((await receive())["body"])
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"body"})

    head = b"POST / HTTP/%b\r\nhost: here\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n" % version
    connection, socket = await _served(app, head)
    assert (socket.sent == [b"HTTP/1.1 100 Continue\r\n\r\n"]) is is_asked_on
    connection.data_received(b"abc")
    await _turns()
    assert bodies == [b"abc"]
    assert socket.sent[-1] == b"body"


async def test_a_server_that_stops_ends_the_connection_with_the_response():
    async def app(_, __, send):
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"body"})

    connection, socket = _connected(app)
    connection.data_received(REQUEST)
    connection.shutdown()
    await _turns()
    assert b"connection: close" in socket.sent[0]
    assert socket.is_closed


async def test_a_response_that_ends_its_connection_within_its_request_is_whole_and_can_be_read():
    ended = list[str]()

    async def app(_, __, send):
        await send({**HEAD, "headers": [*HEAD["headers"], (b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"body"})
        ended.append("as it should")

    request = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 100\r\n\r\nhalf"
    connection, socket = await _served(app, request)
    assert (ended, b"".join(socket.sent)[-4:]) == (["as it should"], b"body")
    assert (socket.is_ended, socket.is_closed) == (True, False)
    connection.connection_lost(None)


async def test_a_lost_connection_is_reported_to_the_request_under_way_also_if_others_wait_behind_it():
    reported = list[str]()

    async def app(scope, receive, _):
        await receive()
        reported.append((await receive())["type"])

    connection, _ = await _served(app, REQUEST * 3)
    connection.connection_lost(None)
    await _turns()
    assert reported == ["http.disconnect"]


UPLOAD = b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"
"""The beginning of a request."""


async def test_a_client_refused_in_the_middle_of_its_body_is_gone_for_the_application_and_may_still_read():
    reported = list[str]()

    async def app(_, receive, send):
        while (message := await receive())["type"] != "http.disconnect":
            reported.append(message["body"].decode())
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"late"})
        reported.append("end")

    connection, socket = await _served(app, UPLOAD)
    connection.data_received(b"this is no chunk\r\n")
    await _turns()
    assert reported == ["a", "end"]
    assert [sent.partition(b"\r\n")[0] for sent in socket.sent] == [b"HTTP/1.1 400 Bad Request"]
    assert (socket.is_ended, socket.is_closed, socket.is_paused) == (True, False, False)
    for _ in range(65):
        connection.data_received(bytes(1024 * 1024))
    assert (socket.is_closed, socket.is_paused) == (False, True), "a flood is not read for ever"
    connection.connection_lost(None)
    assert reported == ["a", "end"]


@pytest.mark.parametrize("ends", [True, False])
async def test_no_refusal_is_written_into_a_response_that_has_begun(ends):
    async def app(_, __, send):
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"1234" if ends else b"12", "more_body": not ends})
        if not ends:
            await asyncio.Event().wait()

    connection, socket = await _served(app, UPLOAD)
    connection.data_received(b"this is no chunk\r\n")
    await _turns()
    assert b"".join(socket.sent).partition(b"\r\n\r\n")[2] == (b"1234" if ends else b"12")
    assert (socket.is_ended, socket.is_closed) == (True, False)


@pytest.mark.parametrize("size", [0, 100_000])
async def test_a_client_that_sends_ahead_is_read_on_unless_it_sends_much(size):
    """So that its departure is noticed."""
    turn = asyncio.Semaphore(0)

    async def app(_, receive, send):
        await turn.acquire()
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    connection, socket = await _served(app)
    connection.data_received(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))
    assert socket.is_paused == (size > 0)
    for _ in range(2):
        turn.release()
        await _turns()
    assert not socket.is_paused
    assert b"".join(socket.sent).count(b"HTTP/1.1 204") == 2
    connection.connection_lost(None)
