"""The response to a request that offered the proxy's own tool: one for the client, whatever rounds it took.

Rule: a response in which the model does not call that tool passes as it came, a stream event by event. A later round
that fails after a byte has been sent breaks the stream, as the upstream's own failure would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from proxy.core.overflow import Counted
from proxy.errors import UpstreamUnreachable
from proxy.shell.relay.peeking import OF_THE_BODY, PeekedResponse
from proxy.shell.relay.tool_loop import ToolLoop
from proxy.shell.upstream.client import Headers
from proxy.shell.upstream.tap import Taker, body_of
from proxy.wire.protocol import Reply
from proxy.wire.streams import Tail

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Of a response that is not a stream; a longer one is passed on as it arrives."""


class WholeResponse:
    """A response that is not a stream, after its rounds are over."""

    def __init__(
        self,
        held: PeekedResponse,
        pieces: list[bytes],
        prompt_tokens: int | None,
        rest: AsyncIterator[bytes] | None = None,
    ) -> None:
        self.status = held.status
        self.headers: Headers = held.headers
        self.prompt_tokens = prompt_tokens
        """The upstream's count for the first send: later rounds also hold pages."""
        self._held = held
        self._pieces = pieces
        self._rest = rest

    @classmethod
    async def of(cls, first: PeekedResponse, rounds: ToolLoop) -> WholeResponse:
        """Go through the rounds. Raises ProxyError."""
        reply, current = rounds.planned.wire.reply(stream=False), first
        try:
            while True:
                pieces, rest = await _read(current)
                counted = first.prompt_tokens
                if rest is not None or current.status != 200:
                    return cls(current, pieces, counted, rest)
                came = b"".join(pieces)
                reply.feed(came)
                said = reply.end()
                rounds.decision.note_usage(reply.usage)
                if said is None or said.is_mixed:
                    if said is not None:
                        await rounds.close(said, current, current)
                    return cls(current, [], counted)._saying(reply.last_words(), came)
                following = await rounds.following(said)
                if following is None:
                    await rounds.close(said, current, current)
                    return cls(current, [], counted)._saying(reply.stopped(rounds.last_words), came)
                await current.aclose()
                current = following
                reply.next_round()
        except BaseException:
            await current.aclose()
            raise

    async def chunks(self) -> AsyncIterator[bytes]:
        """The whole body, like UpstreamResponse.chunks."""
        for piece in self._pieces:
            yield piece
        if self._rest is not None:
            async for piece in self._rest:
                yield piece

    async def drain(self) -> None:
        """As UpstreamResponse.drain."""
        await self._held.drain()

    async def aclose(self) -> None:
        """Release the connection."""
        await self._held.aclose()

    def _saying(self, body: bytes, came: bytes) -> WholeResponse:
        self._pieces = [body]
        if body != came:
            kept = [pair for pair in self.headers if pair[0] not in OF_THE_BODY]
            self.headers = [*kept, (b"content-length", str(len(body)).encode())]
        return self


class StreamedResponse:
    """A stream that continues with the streams of later rounds."""

    def __init__(self, first: PeekedResponse, rounds: ToolLoop) -> None:
        self.status = first.status
        self.headers: Headers = [pair for pair in first.headers if pair[0] not in OF_THE_BODY]
        self._current = first
        self._first = first
        self._rounds = rounds
        self._coming: asyncio.Task[PeekedResponse | None] | None = None
        """The response of the next round, while comments are sent."""
        self._taker: Taker | None = None

    def hand_to(self, taker: Taker) -> None:
        """Like UpstreamResponse.hand_to."""
        self._taker = taker

    @property
    def prompt_tokens(self) -> int | None:
        """The upstream's count for the first send."""
        return self._first.prompt_tokens

    @property
    def counted(self) -> Counted | None:
        """All of its counts for the first send."""
        return self._first.counted

    async def chunks(self) -> AsyncIterator[bytes]:
        """The events, like UpstreamResponse.chunks. Raises ProxyError if a later round fails."""
        wire = self._rounds.planned.wire
        stream = wire.reply(stream=True)
        while True:
            if self._taker is not None:
                self._current.hand_to(_Told(self._taker, stream, self._current.last))
            async for piece in self._current.chunks():
                if told := stream.feed(piece):
                    yield told
            said = stream.end()
            self._rounds.decision.note_usage(stream.usage)
            if said is None or said.is_mixed:
                if said is not None or self._current is not self._first:
                    await self._rounds.close(said, self._first, self._current)
                yield stream.last_words()
                return
            seconds = self._rounds.retrieval.keepalive_seconds
            if seconds is None or not wire.framing.comment:
                following = await self._rounds.following(said)
            else:
                self._coming = asyncio.create_task(self._rounds.following(said))
                while not (await asyncio.wait({self._coming}, timeout=seconds))[0]:
                    yield wire.framing.comment
                following, self._coming = self._coming.result(), None
            if following is None:
                await self._rounds.close(said, self._first, self._current)
                yield stream.stopped(self._rounds.last_words)
                return
            await self._current.aclose()
            self._current = following
            if following.status != 200 or not following.is_stream:
                raise UpstreamUnreachable(f"the upstream ended an answer: its next round got HTTP {following.status}")
            stream.next_round()

    async def drain(self) -> None:
        """As UpstreamResponse.drain."""
        await self._current.drain()

    async def aclose(self) -> None:
        """Release the connections."""
        if self._coming is not None:
            self._coming.cancel()
            (came,) = await asyncio.gather(self._coming, return_exceptions=True)
            if isinstance(came, PeekedResponse):
                await came.aclose()
        await self._current.aclose()


class _Told:
    """Takes the pieces of one round, of which its taker gets what the client gets."""

    def __init__(self, taker: Taker, stream: Reply, last: Tail) -> None:
        self.last = last
        self._taker = taker
        self._stream = stream
        self._write_as_it_is: Callable[[bytes], None]

    @property
    def is_ready(self) -> bool:
        return self._taker.is_ready

    def take(self, piece: bytes) -> None:
        self.last.add(piece)
        if told := self._stream.feed(piece):
            self._taker.take(told)

    def chunk_writer(self, stop: Callable[[], None]) -> Callable[[bytes], None] | None:
        write = self._taker.chunk_writer(stop)
        if write is None:
            return None
        self._write_as_it_is = write
        return self._write

    def note_written(self, pieces: Sequence[bytes]) -> None:
        self.last.extend(pieces)

    def _write(self, chunk: bytes) -> None:
        piece = body_of(chunk)
        told = self._stream.feed(piece)
        if told == piece:
            self._write_as_it_is(chunk)
            self._taker.note_written((piece,))
        elif told:
            self._taker.take(told)


async def watched(answer: PeekedResponse, rounds: ToolLoop) -> PeekedResponse | WholeResponse | StreamedResponse:
    """The response as the client gets it. Raises ProxyError."""
    if answer.status != 200 or not answer.is_plain:
        return answer
    return StreamedResponse(answer, rounds) if answer.is_stream else await WholeResponse.of(answer, rounds)


async def _read(answer: PeekedResponse) -> tuple[list[bytes], AsyncIterator[bytes] | None]:
    """The body, and the rest of it if it is too long."""
    pieces, length, rest = [], 0, answer.chunks()
    async for piece in rest:
        pieces.append(piece)
        length += len(piece)
        if length > MAX_BODY_BYTES:
            return pieces, rest
    return pieces, None
