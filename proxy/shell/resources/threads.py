"""Threads for work that may never finish, as on a dead disk, or that stops when the client has left. Recurring work
runs in tasks beside the requests.

Rule: the process can exit while a thread hangs; it waits briefly, so that work that is nearly done gets done. Work on a
request stops at the next message at the latest, and lets other requests go first between two messages.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from proxy.core.conversation import Edit, Message
from proxy.core.notices import Notices
from proxy.shell.resources.logs import logger

EXIT_SECONDS: Final = 2.0
"""Longest wait for all threads together at exit; writing an artifact takes milliseconds."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class TooSlow(TimeoutError):
    """Work took longer than it may, not counting the wait for a thread."""


class Threads:
    """One kind of work, on at most so many threads at a time: what hangs keeps its thread, and hurts no other kind.

    Each call has a thread of its own, which takes a tenth of a millisecond to start; a call here reads or writes a
    file, or asks a server.
    """

    def __init__(self, most: int, name: str) -> None:
        self._name = name
        self._free = asyncio.Semaphore(most)
        self._ended_at = float("-inf")
        """Time of `time.monotonic` at which any work ended last."""

    async def run(
        self, seconds: float, work: Callable[[], _Result], ended: Callable[[], None] = lambda: None
    ) -> _Result:
        """The result of a call. Raises what it raises, and TooSlow if it takes longer than this many seconds by itself.
        `ended` is called when the work ends or will never begin, whether or not anybody still waits for it.

        It waits for a thread, in order, as long as any thread makes progress: that wait depends on how much there is to
        do, and says nothing about how long the call takes.
        """
        with contextlib.ExitStack() as ends:
            ends.callback(ended)
            await self._take_turn(seconds)
            ends.callback(self._end_turn)
            done = asyncio.wrap_future(_started(self._name, work))
            done.add_done_callback(partial(_note_end, ends.pop_all()))
        await asyncio.wait([done], timeout=seconds)  # which cancels nothing
        if not done.done():
            raise TooSlow(f"no answer in {seconds:g} s")
        return done.result()

    async def _take_turn(self, seconds: float) -> None:
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
                    return
            except TimeoutError:
                if time.monotonic() - self._ended_at >= seconds:
                    raise TooSlow(f"no answer in {seconds:g} s") from None

    def _end_turn(self) -> None:
        self._ended_at = time.monotonic()
        self._free.release()


def _note_end(ends: contextlib.ExitStack, done: asyncio.Future[Any]) -> None:
    ends.close()
    done.exception()  # for which nobody may be left to ask


def _started(name: str, work: Callable[[], _Result]) -> Future[_Result]:
    """A call in a daemon thread: Python waits at its exit for the threads of a `ThreadPoolExecutor`, and so for ever
    for one that hangs. Raises RuntimeError if the system has no more threads."""
    future: Future[_Result] = Future()
    thread = threading.Thread(target=_fulfil, args=(future, work), name=name, daemon=True)
    thread.start()
    _at_work.add(thread)
    return future


_at_work: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


def _fulfil(future: Future[_Result], work: Callable[[], _Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


@atexit.register
def _leave() -> None:
    """A daemon thread that resumes while the interpreter is torn down could crash the process."""
    until = time.monotonic() + EXIT_SECONDS
    for thread in list(_at_work):
        thread.join(max(0.0, until - time.monotonic()))


async def recurring(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """Do this every so many seconds, until the task is cancelled; a failure is logged, and the work done again."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception:
            logger().exception("recurring_failed")


_given_up: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)
"""Set when no request waits for the work of this thread any more."""


class UnderWay:
    """The requests that the event loop of this process serves, counted by it alone."""

    count = 0


class NotWanted(Exception):
    """Ends the work; never caught."""


async def in_thread(work: Callable[_Given, _Result], /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
    """asyncio.to_thread, but cancelled work stops where it checks whether it is still wanted."""
    given_up = threading.Event()
    before = _given_up.set(given_up)
    try:
        return await asyncio.to_thread(work, *given, **named)  # which copies the context
    finally:
        given_up.set()
        _given_up.reset(before)


def while_wanted(_: int, __: Message, ___: str, ____: Notices) -> Iterator[Edit]:
    """A local step that changes nothing, and yields to other requests: their event loop would otherwise wait for the
    GIL after each socket operation. Raises NotWanted when no request waits for the plan any more.

    Beside requests of 2 MB that were never seen, the 99th percentile of small ones was 26 ms without this and 17 with
    it (nginx: 11). The large one then takes a tenth of a millisecond longer for each of its messages.
    """
    given_up = _given_up.get()
    if given_up is None:
        return iter(())  # on the event loop
    if given_up.is_set():
        raise NotWanted
    if UnderWay.count > 1:
        time.sleep(0)
    return iter(())
