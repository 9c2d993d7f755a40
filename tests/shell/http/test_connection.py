"""A client's connection: how its loss is reported, and how a response is written to it."""

import asyncio

import pytest
import uvicorn
from support.noting_socket import NotingSocket
from uvicorn.server import ServerState

from proxy.shell.http import connection_of
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
    limits = Connections(max_head_bytes=8192, head_seconds=30, keep_alive_seconds=30, max_connections=10)
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


async def test_a_body_that_follows_its_head_at_once_leaves_with_it():
    async def app(_, __, send):
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"2", "more_body": True})
        await send({"type": "http.response.body", "body": b"345"})

    _, socket = await _served(app)
    assert [piece[-3:] for piece in socket.sent] == [b"\r\n2"[-3:], b"345"]
    assert socket.sent[0].startswith(b"HTTP/1.1 200 ")


async def test_a_head_does_not_wait_for_a_body_that_takes_its_time():
    body = asyncio.Event()

    async def app(_, __, send):
        await send(HEAD)
        await body.wait()
        await send({"type": "http.response.body", "body": b"late"})

    _, socket = await _served(app)
    assert [piece.endswith(b"\r\n\r\n") for piece in socket.sent] == [True]
    body.set()
    await _turns()
    assert socket.sent[1:] == [b"late"]


async def test_each_response_of_a_kept_connection_leaves_in_one_write():
    async def app(_, __, send):
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"body"})

    connection, socket = _connected(app)
    for count in (1, 2, 3):
        connection.data_received(REQUEST)
        await _turns()
        assert [piece.endswith(b"\r\n\r\nbody") for piece in socket.sent] == [True] * count


def _sending(status, headers, body, *, whole):
    """Sends a response in two messages; None: or in one piece, if it can, and says whether it could."""

    async def app(scope, _, send):
        connection = connection_of(scope)
        if whole is not None:
            whole.append(connection.send_whole(status, headers, body))
        if not whole or not whole[-1]:
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    return app


LENGTH = (b"content-length", b"4")


@pytest.mark.parametrize(
    ("status", "headers", "is_simple"),
    [
        (200, [LENGTH], True),
        (404, [(b"x-a", b"1"), (b"x-a", b"\xff\t2"), LENGTH], True),
        (204, [LENGTH], True),
        (200, [], False),
        (200, [LENGTH, (b"connection", b"close")], False),
        (200, [LENGTH, (b"transfer-encoding", b"chunked")], False),
    ],
)
async def test_a_whole_response_is_sent_as_uvicorn_sends_it(status, headers, is_simple):
    whole: list[bool] = []
    ours, theirs = (_connected(_sending(status, headers, b"body", whole=how)) for how in (whole, None))
    for count in (1, 2):
        for connection, _ in (ours, theirs):
            connection.data_received(REQUEST)
        await _turns()
        assert [one[1].sent for one in (ours, theirs)] == [theirs[1].sent] * 2
        assert whole == [is_simple] * count
    assert ours[1].is_closed == theirs[1].is_closed


@pytest.mark.parametrize(
    "header", [(b"content-length", b"3"), (b"x", b"1\r\ny: 2"), (b"x", b"1\n"), (b"x", b"1\r"), (b"x", b"\x00")]
)
async def test_no_whole_response_has_a_header_that_uvicorn_would_refuse(header):
    whole: list[bool] = []
    await _served(_sending(200, [LENGTH, header], b"body", whole=whole))
    assert whole == [False]


async def test_a_whole_response_is_neither_a_second_one_nor_one_to_a_head():
    found: list[bool] = []

    async def app(scope, _, send):
        connection = connection_of(scope)
        await send(HEAD)
        found.append(connection.send_whole(200, [LENGTH], b"body"))
        await send({"type": "http.response.body", "body": b"body"})

    _, socket = await _served(app)
    assert socket.sent[0].endswith(b"\r\n\r\nbody")
    assert found == [False]
    _, socket = await _served(_sending(200, [LENGTH], b"body", whole=found), b"HEAD" + REQUEST[3:])
    assert found == [False, False]


async def test_a_server_that_stops_ends_the_connection_with_a_whole_response():
    whole: list[bool] = []
    connection, socket = _connected(_sending(200, [LENGTH], b"body", whole=whole))
    connection.data_received(REQUEST)
    connection.shutdown()
    await _turns()
    assert whole == [False]
    assert b"connection: close" in socket.sent[0]


async def test_a_response_that_ends_its_connection_is_sent_before_the_end():
    async def app(_, __, send):
        await send({**HEAD, "headers": [(b"content-length", b"0"), (b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b""})

    _, socket = await _served(app)
    assert socket.is_closed
    assert len(socket.sent) == 1


async def test_a_lost_connection_notifies_its_subscriber_only():
    reported = list[str]()
    going_on = asyncio.Event()

    async def app(scope, _, __):
        connection = connection_of(scope)
        connection.when_lost(lambda: reported.append("first"))
        connection.when_lost(lambda: reported.append("second"))
        await going_on.wait()
        connection.when_lost(lambda: reported.append("late"))

    connection, _ = await _served(app)
    connection.connection_lost(None)
    assert reported == ["second"]
    going_on.set()
    await _turns()
    assert reported == ["second", "late"]  # it was lost before the first callback was added


async def test_an_unsubscribed_callback_is_not_called():
    async def app(scope, receive, _):
        connection = connection_of(scope)
        connection.when_lost(lambda: reported.append("asked"))
        connection.when_lost(None)
        while (await receive())["type"] != "http.disconnect":
            pass

    reported = list[str]()
    connection, _ = await _served(app)
    connection.connection_lost(None)
    await _turns()
    assert reported == []


async def test_chunks_of_a_response_leave_as_they_are_until_there_is_no_room_for_them():
    stopped, requested, over = list[str](), asyncio.Event(), asyncio.Event()

    async def app(scope, _, send):
        connection = connection_of(scope)
        assert connection.chunk_writer(lambda: None) is None, "there is no head yet"
        await send({**HEAD, "headers": []})
        assert connection.chunk_writer(lambda: None) is None, "the head waits"
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        writer = connection.chunk_writer(lambda: stopped.append("full"))
        writer(b"1\r\nb\r\n")
        requested.set()
        await over.wait()
        assert connection.chunk_writer(lambda: None) is not None
        await send({"type": "http.response.body", "body": b""})
        assert connection.chunk_writer(lambda: None) is None, "it has ended"

    connection, socket = _connected(app)
    connection.data_received(REQUEST)
    await requested.wait()
    connection.pause_writing()
    assert connection.chunk_writer(lambda: None) is None
    connection.resume_writing()
    connection.pause_writing()
    assert stopped == ["full"]
    connection.resume_writing()
    over.set()
    await _turns()
    head, _, body = b"".join(socket.sent).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body == b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"


async def test_a_lost_connection_takes_no_more_chunks_and_a_response_of_known_length_none():
    stopped, requested = list[str](), asyncio.Event()

    def app_with(headers):
        async def app(scope, _, send):
            connection = connection_of(scope)
            await send({**HEAD, "headers": headers})
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
            if connection.chunk_writer(lambda: stopped.append("lost")) is None:
                stopped.append("never began")
            requested.set()
            await asyncio.Event().wait()

        return app

    for headers, reason in (([], "lost"), (HEAD["headers"], "never began")):
        connection, _ = _connected(app_with(headers))
        connection.data_received(REQUEST)
        await requested.wait()
        connection.connection_lost(None)
        assert stopped.pop() == reason
        assert not stopped
        assert not connection.is_writable
        requested.clear()


UPLOAD = b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"
"""The beginning of a request."""


async def test_a_client_refused_in_the_middle_of_its_body_is_gone_for_the_application_and_may_still_read():
    reported = list[str]()

    async def app(scope, receive, send):
        connection = connection_of(scope)
        connection.when_lost(lambda: reported.append("lost"))
        while (message := await receive())["type"] != "http.disconnect":
            reported.append(message["body"].decode())
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"late"})
        connection.resume_writing()
        reported.append(f"writable: {connection.is_writable}")

    connection, socket = await _served(app, UPLOAD)
    connection.data_received(b"this is no chunk\r\n")
    await _turns()
    assert reported == ["a", "lost", "writable: False"]
    assert [sent.partition(b"\r\n")[0] for sent in socket.sent] == [b"HTTP/1.1 400 Bad Request"]
    assert (socket.is_ended, socket.is_closed, socket.is_paused) == (True, False, False)
    for _ in range(65):
        connection.data_received(bytes(1024 * 1024))
    assert (socket.is_closed, socket.is_paused) == (False, True), "a flood is not read for ever"
    connection.connection_lost(None)
    assert reported == ["a", "lost", "writable: False"], "once"


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


async def test_a_finished_response_is_not_stopped():
    stopped = list[str]()

    async def app(scope, _, send):
        connection = connection_of(scope)
        await send({**HEAD, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        connection.chunk_writer(lambda: stopped.append("full"))
        await send({"type": "http.response.body", "body": b""})

    connection, _ = await _served(app)
    connection.pause_writing()
    assert stopped == []


async def test_a_client_that_sends_ahead_is_read_again_once_little_waits():
    turn = asyncio.Semaphore(0)
    served = 0

    async def app(_, __, send):
        nonlocal served
        await turn.acquire()
        served += 1
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    connection, socket = _connected(app)
    many = 3 * 64 * 1024 // len(REQUEST)
    connection.data_received(REQUEST * many)
    was_paused = []
    for _ in range(many):
        was_paused.append(socket.is_paused)
        turn.release()
        await _turns()
    assert served == many
    assert was_paused == [True] * was_paused.count(True) + [False] * was_paused.count(False)
    assert was_paused.count(False) == 64 * 1024 // len(REQUEST) + 1
    connection.connection_lost(None)
