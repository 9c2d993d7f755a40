"""How much of an answer is looked at before a client gets any of it, and that none of it is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamUnreachable
from proxy.shell.relay import HELD_BYTES, PeekedResponse
from proxy.shell.relay.peeking import QUIET_BYTES
from proxy.wire import Wire
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.responses import RESPONSES

JSON = ((b"content-type", b"application/json"),)
EVENTS = ((b"content-type", b"Text/Event-Stream; charset=utf-8"),)


class FakeAnswer:
    """An upstream's answer in pieces."""

    def __init__(
        self, pieces: Sequence[bytes | Exception], headers: Sequence[tuple[bytes, bytes]] = JSON, status: int = 200
    ) -> None:
        self.status = status
        self.headers = list(headers)
        self.read = 0
        self.closed = 0
        self._pieces_to_come = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces_to_come:
            if isinstance(piece, Exception):
                raise piece
            self.read += 1
            yield piece

    def arrived(self) -> bytes | None:
        return None

    async def aclose(self) -> None:
        self.closed += 1


async def looked(
    pieces: Sequence[bytes | Exception], *described: Any, wire: Wire = CHAT_COMPLETIONS
) -> tuple[FakeAnswer, PeekedResponse]:
    """An upstream's answer, and what the client gets of it, after the look."""
    upstream = FakeAnswer(pieces, *described)
    answer = PeekedResponse.of(upstream, wire)  # type: ignore[arg-type] # it has all that is used
    await answer.look()
    return upstream, answer


async def collected(answer: PeekedResponse) -> bytes:
    return b"".join([piece async for piece in answer.chunks()])


async def test_of_a_stream_no_more_is_read_than_its_first_event_that_says_something() -> None:
    upstream, answer = await looked([b": wait\n\n", b"event: x\n", b"data: 1\n", b"\n", b"data: 2\n\n"], EVENTS)
    assert (upstream.read, answer.evidence) == (4, b": wait\n\nevent: x\ndata: 1\n\n")
    assert await collected(answer) == b": wait\n\nevent: x\ndata: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize(
    "nothing",
    [
        b"data: {}\n\n",
        b'data: {"choices":[],"prompt_filter_results":[{}]}\n\n',
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
    ],
)
async def test_an_event_that_holds_nothing_does_not_end_the_look(nothing: bytes) -> None:
    upstream, answer = await looked(
        [nothing, nothing, b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b"more"], EVENTS
    )
    assert (upstream.read, answer.is_whole) == (3, False)


@pytest.mark.parametrize(
    "something",
    [b"data: [DONE]\n\n", b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n', b'data: {"error":"no"}\n\n'],
)
async def test_an_end_a_usage_or_an_error_ends_the_look(something: bytes) -> None:
    upstream, _ = await looked([b"data: {}\n\n", something, b"data: 2\n\n"], EVENTS)
    assert upstream.read == 2


async def test_a_short_body_is_read_whole() -> None:
    upstream, answer = await looked([b'{"error"', b": 1}"])
    assert (upstream.read, answer.evidence, answer.is_whole) == (2, b'{"error": 1}', True)


async def test_of_a_long_body_only_the_beginning_is_held() -> None:
    upstream, answer = await looked([b"x" * 1_000] * 500)
    assert upstream.read == -(-HELD_BYTES // 1_000)
    assert len(await collected(answer)) == 500_000


async def test_a_stream_that_never_says_anything_is_not_held_for_ever() -> None:
    upstream, _ = await looked([b": wait\n\n"] * 20_000, EVENTS)
    assert upstream.read == -(-HELD_BYTES // 8)


async def test_a_stream_without_an_event_leaves_nothing_to_judge() -> None:
    _, answer = await looked([], EVENTS)
    assert (answer.evidence, await collected(answer)) == (b"", b"")


@given(st.lists(st.binary(min_size=1, max_size=50) | st.sampled_from([b"data: 1\n\n", b"\r", b"\n"]), max_size=30))
async def test_whatever_comes_passes_byte_for_byte(pieces: list[bytes]) -> None:
    for headers in (JSON, EVENTS, ((b"content-encoding", b"gzip"), *EVENTS)):
        _, answer = await looked(pieces, headers)
        assert await collected(answer) == b"".join(pieces)


async def test_an_answer_that_breaks_off_breaks_off_for_the_client_too() -> None:
    _, answer = await looked([b"data: 1\n\n", b"data: 2\n\n", UpstreamUnreachable("gone")], EVENTS)
    pieces = answer.chunks()
    assert [await anext(pieces), await anext(pieces)] == [b"data: 1\n\n", b"data: 2\n\n"]
    with pytest.raises(UpstreamUnreachable):
        await anext(pieces)


async def test_an_answer_that_breaks_off_before_it_can_be_judged_is_no_answer() -> None:
    with pytest.raises(UpstreamUnreachable):
        await looked([b'{"er', UpstreamUnreachable("gone")])


@pytest.mark.parametrize(
    ("pieces", "counted"),
    [
        ([b'{"choices": [], "usage": {"prompt_tokens": 1234, "completion_tokens": 5}}'], 1234),
        ([b'data: {"usage":{"prompt_tokens":12}}\n\n', b"data: [DONE]\n\n"], 12),
        ([b'data: {"usage":{"prompt_', b'tokens":12}}\n\ndata: [DONE]\n\n'], 12),
        ([b'{"usage": null}'], None),
        ([b'{"choices": [{"message": {"content": "{\\"prompt_tokens\\": 7}"}}]}'], None),
        ([b'{"usage": {"prompt_tokens": "7"}}'], None),
        ([], None),
    ],
)
async def test_what_the_upstream_counted_is_read_at_the_end_of_its_answer(
    pieces: list[bytes], counted: int | None
) -> None:
    _, answer = await looked(pieces, EVENTS)
    await collected(answer)
    assert (answer.counted and answer.counted.prompt) == counted


async def test_what_a_model_wrote_long_before_the_end_is_not_taken_for_a_count() -> None:
    _, answer = await looked([b'{"prompt_tokens": 7, "x": "' + b"y" * 5_000 + b'"}'])
    await collected(answer)
    assert answer.counted is None


async def test_closing_closes_the_upstreams_answer() -> None:
    upstream, answer = await looked([b"data: 1\n\n", b"data: 2\n\n"], EVENTS)
    await answer.aclose()
    assert (upstream.closed, upstream.read) == (1, 1)


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_status_and_headers_are_the_upstreams(status: int) -> None:
    headers: Any = [*JSON, (b"retry-after", b"3")]
    _, answer = await looked([b"{}"], headers, status)
    assert (answer.status, answer.headers) == (status, headers)


async def test_events_that_repeat_a_long_request_do_not_end_the_look() -> None:
    repeated = b'data: {"type":"response.created","response":{"instructions":"' + b"x" * HELD_BYTES + b'"}}\n\n'
    refusal = b'data: {"type":"response.failed"}\n\n'
    upstream, answer = await looked([repeated, repeated, refusal, b"more"], EVENTS, wire=RESPONSES)
    assert (upstream.read, answer.judged.endswith(refusal)) == (3, True)
    assert await collected(answer) == repeated + repeated + refusal + b"more"


async def test_events_that_say_nothing_are_not_held_for_ever() -> None:
    quiet = b'data: {"type":"response.in_progress","x":"' + b"x" * 10_000 + b'"}\n\n'
    upstream, _ = await looked([quiet] * 1_000, EVENTS, wire=RESPONSES)
    assert upstream.read == -(-QUIET_BYTES // len(quiet))
