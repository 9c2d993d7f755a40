"""The watch over the client: what is done for it ends with it, and nothing else ends it."""

import asyncio
from typing import Any

import pytest

from proxy.errors import ClientLeft
from proxy.shell.http import until_client_leaves


class Receiving:
    """An ASGI `receive` of a client that stays until `leave` is called."""

    def __init__(self):
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        return await self._messages.get()

    def leave(self):
        self._messages.put_nowait({"type": "http.disconnect"})

    def send_more(self):
        self._messages.put_nowait({"type": "http.request", "body": b"late", "more_body": False})


async def test_a_client_that_leaves_ends_what_is_done_for_it():
    receive = Receiving()
    with pytest.raises(ClientLeft):  # noqa: PT012 - the block is what ends
        async with until_client_leaves(receive):
            receive.leave()
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task.cancelling() == 0


async def test_what_a_client_sends_late_is_no_leaving():
    receive = Receiving()
    async with until_client_leaves(receive):
        receive.send_more()
        for _ in range(5):
            await asyncio.sleep(0)
    assert receive.calls == 2


async def test_nothing_is_received_before_the_body_has_been_taken():
    receive, taken = Receiving(), asyncio.Event()
    receive.leave()
    async with until_client_leaves(receive, after=taken):
        for _ in range(5):
            await asyncio.sleep(0)
        assert receive.calls == 0
    with pytest.raises(ClientLeft):  # noqa: PT012 - the block is what ends
        async with until_client_leaves(receive, after=taken):
            taken.set()
            await asyncio.Event().wait()


async def test_a_client_that_leaves_with_all_that_it_wanted_only_ends_the_block():
    receive, done = Receiving(), []
    async with until_client_leaves(receive, has_all=lambda: True):
        receive.leave()
        await asyncio.Event().wait()
        done.append("more")
    assert (done, asyncio.current_task().cancelling()) == ([], 0)


async def test_the_end_of_a_response_which_servers_report_as_a_departure_is_none():
    receive = Receiving()
    async with until_client_leaves(receive):
        await asyncio.sleep(0)
        receive.leave()  # as the last byte is sent
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_cancellation_from_elsewhere_stays_one():
    async def serve():
        async with until_client_leaves(Receiving()):
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_errors_pass_and_end_the_watch():
    with pytest.raises(ValueError, match="own"):
        async with until_client_leaves(Receiving()):
            raise ValueError("own")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
