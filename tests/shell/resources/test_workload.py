"""What all requests together may take, and memory that is given back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.resources import workload as workload_module
from proxy.shell.resources.workload import Share, Workload, give_memory_back


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def taking(workload: Workload, share: Share, size: int) -> asyncio.Task[None]:
    return asyncio.create_task(workload.take(share, size))


async def test_what_there_is_room_for_goes_on_at_once() -> None:
    workload = Workload(100)
    shares = [workload.share() for _ in range(10)]
    await asyncio.gather(*(workload.take(share, 10) for share in shares))
    assert workload.done_bytes == 0
    for share in shares:
        share.release()
        share.release()
    assert workload.done_bytes == 100


async def test_who_comes_when_it_is_too_much_waits_in_order() -> None:
    workload = Workload(100)
    first, second, third, fourth = (workload.share() for _ in range(4))
    await workload.take(first, 90)
    waiting = [taking(workload, share, 50) for share in (second, third, fourth)]
    await settled()
    # One of them always goes on, or nobody would come to an end.
    assert [task.done() for task in waiting] == [True, False, False]
    first.release()
    await settled()
    assert [task.done() for task in waiting] == [True, False, False]
    second.release()
    await settled()
    assert [task.done() for task in waiting] == [True, True, True]


async def test_one_request_over_the_bound_goes_on_alone() -> None:
    workload = Workload(100)
    large, other = workload.share(), workload.share()
    for _ in range(5):
        await workload.take(large, 60)
    waiting = taking(workload, other, 10)
    await settled()
    assert not waiting.done()
    large.release()
    await waiting


async def test_halves_of_bodies_do_not_wait_for_each_other() -> None:
    workload = Workload(100)

    async def request() -> None:
        share = workload.share()
        for _ in range(4):
            await workload.take(share, 30)
            await asyncio.sleep(0)
        share.release()

    async with asyncio.timeout(20):
        await asyncio.gather(*(request() for _ in range(20)))
    assert workload.done_bytes == 20 * 4 * 30


async def test_who_leaves_while_he_waits_leaves_room() -> None:
    workload = Workload(100)
    shares = [workload.share() for _ in range(4)]
    await workload.take(shares[0], 100)
    waiting = [taking(workload, share, 100) for share in shares[1:]]
    await settled()
    waiting[1].cancel()
    await settled()
    shares[2].release()
    shares[0].release()
    shares[1].release()
    await waiting[2]
    shares[3].release()
    await workload.take(shares[0], 100)


@given(st.lists(st.lists(st.integers(1, 80), max_size=4), max_size=12))
def test_everybody_comes_to_an_end(bodies: list[list[int]]) -> None:
    workload = Workload(100)
    at_once: list[int] = [0]

    async def request(pieces: list[int]) -> None:
        share = workload.share()
        for piece in pieces:
            await workload.take(share, piece)
        at_once[0] = max(at_once[0], len(pieces) and share.held_bytes)
        await asyncio.sleep(0)
        share.release()

    async def all_of_them() -> None:
        async with asyncio.timeout(20):
            await asyncio.gather(*map(request, bodies))

    asyncio.run(all_of_them())
    assert workload.done_bytes == sum(map(sum, bodies))
    assert at_once[0] == max(map(sum, bodies), default=0)


async def test_pieces_of_a_body_are_counted_as_they_come() -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"abc", "more_body": True},
        {"type": "http.request", "body": b"de"},
        {"type": "http.disconnect"},
    ]
    left = list(messages)

    async def receive() -> dict[str, Any]:
        return left.pop(0)

    share = Workload(100).share()
    received = share.taking(receive)  # type: ignore[arg-type]
    assert [await received() for _ in messages] == messages
    assert share.held_bytes == 5


@pytest.mark.parametrize(("worked", "trimmed"), [(workload_module.WORTH_BYTES, [0]), (1, [])])
async def test_memory_is_given_back_after_large_requests(
    worked: int, trimmed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_module, "LOOK_SECONDS", 0.0)
    seen: list[int] = []
    monkeypatch.setattr(workload_module, "_malloc_trim", lambda: lambda pad: seen.append(pad) or 1)
    workload = Workload()
    giving = asyncio.create_task(give_memory_back(workload))
    await settled()
    share = workload.share()
    await workload.take(share, worked)
    share.release()
    for _ in range(50):
        await asyncio.sleep(0.002)
    giving.cancel()
    assert seen == trimmed


async def test_without_such_a_c_library_nothing_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_module, "_malloc_trim", lambda: None)
    assert await give_memory_back(Workload()) is None
