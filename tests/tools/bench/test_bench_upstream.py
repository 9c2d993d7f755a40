"""How the stand-in holds streams until enough of them are there."""

import asyncio
from unittest.mock import Mock

import pytest

from tools.bench.upstream import Answering, Standing


def _stream(standing):
    stream = Answering(standing)
    stream.connection_made(Mock(spec=asyncio.Transport))
    return stream


async def _dues(standing, streams, monkeypatch):
    """When each continued stream is due, after the moment at which the last one comes, in multiples of the
    rhythm."""
    loop = asyncio.get_running_loop()
    dues: list[float] = []
    monkeypatch.setattr(loop, "time", lambda: 100.0)
    monkeypatch.setattr(loop, "call_at", lambda due, *_: dues.append((due - 100.0) / 0.02))
    for stream in streams:
        assert dues == []
        standing.join(stream, [b"one", b"two"], together=4, rhythm_seconds=0.02)
    monkeypatch.undo()
    return dues


def test_streams_spread_evenly_over_the_rhythm_once_their_clients_have_the_first_event(monkeypatch):
    standing = Standing()
    for _ in range(2):  # the next ones wait for each other anew
        dues = asyncio.run(_dues(standing, [_stream(standing) for _ in range(4)], monkeypatch))
        assert dues == pytest.approx([1.0, 1.25, 1.5, 1.75])


def test_a_stream_whose_client_left_is_forgotten(monkeypatch):
    standing = Standing()
    streams = [_stream(standing) for _ in range(5)]
    gone = streams[0]

    async def dues():
        standing.join(gone, [b"one", b"two"], together=4, rhythm_seconds=0.02)
        gone.connection_lost(None)
        return await _dues(standing, streams[1:], monkeypatch)

    assert len(asyncio.run(dues())) == 4
