"""Reads the beginning of a response before the client gets any of it, so that a refusal can still be cured unseen.

Rule: read no more than needed: up to the first event of a stream that has content, or the whole of a short body. What
was read is passed on with the rest, byte for byte. What has no content (comments, blanks) need not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct, field

from proxy.core.overflow import Counted
from proxy.errors import UpstreamUnreachable
from proxy.shell.upstream import Headers, UpstreamResponse
from proxy.wire import TAIL_BYTES, Splitter, Tail, Wire

PassEarly: TypeAlias = Callable[[Headers, bytes], Awaitable[None]]
"""Takes what an upstream sends before its response has content, with the response's headers."""

_USAGE_BYTES: Final = 4_096
"""The end of a response, where its usage is; the model's text before it is not searched."""
HELD_BYTES: Final = 64 * 1024
"""Refusals are shorter; a longer body is a reply of the model."""
QUIET_BYTES: Final = 1024 * 1024
"""Limit for events without content at the beginning of a stream: some repeat all tools and instructions of the
request."""
_LARGE_BYTES: Final = 16 * 1024
"""A larger chunk yields to other requests: reading it may take milliseconds."""
OF_THE_BODY: Final = frozenset((b"content-length", b"content-md5", b"digest", b"etag"))
"""Headers that no longer apply when the body has changed."""
_BLANKS: Final = b" \t\r\n"
"""JSON may begin with these; DeepSeek sends empty lines until its reply is ready.
https://api-docs.deepseek.com/quick_start/rate_limit"""
_USAGE_PIECES: Final = 8
"""Pieces that hold the usage: a final chunk, the usage and `[DONE]` arrive separately."""
PIECES_OF_THE_END: Final = 32
"""Pieces examined when a response breaks off: `[DONE]` may arrive in several."""


class PeekedResponse(Struct, eq=False):
    """A response whose beginning was read."""

    _answer: UpstreamResponse
    _wire: Wire
    _pieces: AsyncIterator[bytes]
    """Pieces after the held ones."""
    status: int
    headers: Headers
    last: Tail = field(default_factory=partial(Tail, TAIL_BYTES, PIECES_OF_THE_END))
    """The end of its body, to which the reader of `chunks` adds."""
    is_stream: bool = False
    """Whether the body is a stream of events, by its headers or by its beginning."""
    is_plain: bool = True
    """Whether the body is not compressed, as the proxy asks for; a refusal in any other form goes unnoticed."""
    evidence: bytes = b""
    """Bytes read so far, without those passed on early."""
    is_whole: bool = False
    """Whether the whole body was read: it can be passed on even after the response is closed."""
    failure: UpstreamUnreachable | None = None
    """Why it broke off before anything of it had content; the client gets this error, unless it is sent again."""
    _splitter: Splitter | None = None
    _last_quiet: bytes = b""
    """The latest event with data but without content: it may contain the finish reason."""
    _quiet_bytes: int = 0
    """Data of events without content."""
    _telling: bytes = b""
    """Bytes read from the first event with content on."""

    @classmethod
    def of(cls, answer: UpstreamResponse, wire: Wire) -> PeekedResponse:
        """A response of which nothing was read."""
        headers = answer.headers
        found = cls(answer, wire, answer.chunks(), answer.status, headers, is_stream=wire.framing.is_stream(headers))
        if b"content-encoding" in dict(headers):
            codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
            found.is_plain = all(value in (b"", b"identity") for value in codings)
        return found

    def _may_begin_early(self, *, as_stream: bool) -> bool:
        """Whether bytes without content may be passed on at once: only of a successful response in the form that the
        client requested."""
        if self.status != 200 or not self.is_plain:
            return False
        return self.is_stream if as_stream else b"json" in dict(self.headers).get(b"content-type", b"").lower()

    @property
    def is_plainly_a_reply(self) -> bool:
        """Whether what was read, from the first event with content on if there is one, is the beginning of a reply."""
        return not self.ended_quietly and self._wire.is_plainly_a_reply(self._telling or self.evidence)

    @property
    def judged(self) -> bytes:
        """The bytes to judge if those show no reply: with the event before them."""
        return self._last_quiet + self._telling if self._telling else self.evidence

    @property
    def is_undecided(self) -> bool:
        """Whether no event with content has arrived, and one may follow."""
        return not self.is_whole and not self._telling

    async def look(self, early: PassEarly | None = None, *, as_stream: bool = True) -> None:
        """Read as much as is needed to judge the response; bytes without content go to `early` if it has the form that
        the client requested, `as_stream` or not. Raises UpstreamUnreachable if it breaks off after content, and
        UpstreamTimeout."""
        try:
            if not await self._look_on(early if early and self._may_begin_early(as_stream=as_stream) else None):
                return
        except UpstreamUnreachable as error:
            begun = self._splitter.rest if self._splitter is not None else b"" if self.is_stream else self.evidence
            if self.status != 200 or self._telling or begun.strip():
                raise
            self.failure = error
        self.is_whole = True

    @property
    def ended_quietly(self) -> bool:
        """Whether it is a stream that is over without an event with content."""
        return self.is_whole and self.is_stream and not self._telling

    async def _look_on(self, early: PassEarly | None) -> bool:
        """Read what arrives; returns whether all of it was read without a decision."""
        seen, self.evidence = 0, b""
        async for piece in self._pieces:
            seen += len(piece)
            if self._take(piece):
                return False
            if early is not None:
                seen -= await self._begin(early)
            if seen >= HELD_BYTES and (not self._quiet_bytes or seen >= QUIET_BYTES):
                return False
            if len(piece) >= _LARGE_BYTES:
                await asyncio.sleep(0)  # an endless stream of them must not block other requests
        return True

    def _take(self, piece: bytes) -> bool:
        """Hold a piece; whether it shows what the response is."""
        self.evidence += piece
        framing = self._wire.framing
        if not self.is_stream and framing.begins_stream(self.evidence):
            self.is_stream, piece = True, self.evidence
        if not self.is_stream:
            return False
        self._splitter = self._splitter or framing.splitter()
        events = self._splitter.feed(piece)
        for position, event in enumerate(events):
            data = framing.data_of(event)
            if self._wire.says_something(data):  # a part of the reply, an error, or the end
                self._telling = b"".join(events[position:]) + self._splitter.rest
                return True
            if data:
                self._last_quiet = event
                self._quiet_bytes += len(data)
        return False

    async def _begin(self, early: PassEarly) -> int:
        """Pass on the bytes without content that have arrived, of a response that is not compressed; returns how many.
        Nothing is passed on after content has begun to arrive: the response will be judged at once."""
        has_json_begun = not self.is_stream and self.evidence.strip(_BLANKS)
        count = self._wire.framing.quiet_bytes(self.evidence) if self.is_stream else len(self.evidence)
        if has_json_begun or not count:
            return 0
        quiet, self.evidence = self.evidence[:count], self.evidence[count:]
        await early([pair for pair in self.headers if pair[0] not in OF_THE_BODY], quiet)
        return count

    async def read(self, most: int) -> bytes | None:
        """Read the rest of the body; returns all of it, or None if it is longer. It can still be passed on."""
        pieces, length = [self.evidence], len(self.evidence)
        async for piece in self._pieces:
            pieces.append(piece)
            length += len(piece)
            if length > most:
                break
        self.evidence = b"".join(pieces)
        return self.evidence if length <= most else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The whole body, like UpstreamResponse.chunks, except for what was passed on early."""
        if self.evidence:
            yield self.evidence
        if self.failure is not None:
            raise self.failure
        async for piece in self._pieces:
            yield piece

    @property
    def counted(self) -> Counted | None:
        """The upstream's counts, from the end of its response or the beginning of a stream; None if it states none, or
        has not yet."""
        if self.is_whole:
            return self._wire.counted(self.evidence[-_USAGE_BYTES:])
        begun = self.evidence[:_USAGE_BYTES] if self.is_stream else b""  # where some state the prompt's tokens
        return self._wire.counted(begun + self.last.joined_of(_USAGE_PIECES)[-_USAGE_BYTES:])

    async def drain(self) -> None:
        await self._answer.drain()

    async def aclose(self) -> None:
        """Release the connection."""
        await self._answer.aclose()
