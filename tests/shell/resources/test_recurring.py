from __future__ import annotations

import asyncio
import contextlib

from proxy.shell.resources.recurring import Recurring


async def test_it_is_done_again_and_again_until_it_is_stopped() -> None:
    done = asyncio.Queue[None]()

    async def once() -> None:
        await asyncio.sleep(0)
        done.put_nowait(None)

    work = Recurring(once, "counting")
    work.start()
    for _ in range(3):
        await done.get()
    assert "counting" in {task.get_name() for task in asyncio.all_tasks()}
    await work.stop()
    assert "counting" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_it_ends_even_if_the_cancellation_is_swallowed_and_may_be_started_again() -> None:
    begun = asyncio.Queue[None]()

    async def deaf() -> None:
        begun.put_nowait(None)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    work = Recurring(deaf, "deaf")
    for _ in range(2):
        work.start()
        await begun.get()
        await work.stop()
        assert begun.empty()


async def test_what_was_never_started_can_be_stopped() -> None:
    async def never() -> None:
        raise AssertionError

    assert await Recurring(never, "never").stop() is None
