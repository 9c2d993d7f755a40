"""Threads for work that may never finish (a dead disk, a bucket or a name server that does not respond) and for work on
a request, which stops when the client has left; and tasks for recurring work beside the requests.

Rule: the process can exit while a thread hangs. Python waits for ever for the threads of a `ThreadPoolExecutor`; for
these it waits briefly, so that work that is nearly done gets done. A task ends when it is stopped, even if a library
swallows the cancellation. Work on a request stops at the next message at the latest, and lets other requests go first
between two messages.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from proxy.core.conversation import Edit, Message
from proxy.core.notices import Notices

EXIT_SECONDS: Final = 2.0
"""Longest wait for all threads together at exit; writing an artifact takes milliseconds."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class TooSlow(TimeoutError):
    """Work took longer than it may, not counting the wait for a thread."""


@dataclass(slots=True, eq=False)
class _Task:
    work: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)
    begun: float | None = None
    """Time of `time.monotonic`; None: it waits for a thread."""

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        self.begun = time.monotonic()
        try:
            found = self.work()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(found)


_Queue: TypeAlias = SimpleQueue[_Task | None]
"""None: a thread may end."""


class DaemonThreads(Executor):
    """At most this many threads; each is started when it is needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queue: _Queue = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._running: dict[threading.Thread, _Task] = {}
        """The current task of each thread."""
        self._changing = threading.Lock()
        self._is_shut = False
        _pools.add(self)
        weakref.finalize(self, _let_go, self._queue, self._threads).atexit = False

    def submit(
        self, work: Callable[_Given, _Result], /, *given: _Given.args, **named: _Given.kwargs
    ) -> Future[_Result]:
        """Queue a call. Raises RuntimeError after `shutdown`."""
        task = _Task(partial(work, *given, **named))
        self._put(task)
        return task.future

    async def run(
        self, seconds: float, work: Callable[_Given, _Result], /, *given: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """The result of a call. Raises what it raises, TooSlow if it takes longer than this many seconds by itself, and
        RuntimeError after `shutdown`.

        It waits for a thread, in order, as long as any thread makes progress: that wait depends on how much there is to
        do, and says nothing about how long the call takes.
        """
        (found,) = await self.run_all(seconds, [partial(work, *given, **named)])
        if isinstance(found, BaseException):
            raise found
        return found

    async def run_all(
        self, seconds: float, calls: Sequence[Callable[[], _Result]], ended: Callable[[], None] | None = None
    ) -> Sequence[_Result | BaseException]:
        """The result or exception of each call; TooSlow for those that have not ended when all together have taken this
        many seconds, counted from when the first of them began. `ended` is called, in some thread, when a call ends or
        will never begin, whether or not anybody still waits for it. Raises RuntimeError after `shutdown`."""
        tasks = [_Task(call) for call in calls]
        for task in tasks:
            if ended is not None:
                task.future.add_done_callback(lambda _: ended())
            self._put(task)
        done = [asyncio.wrap_future(task.future) for task in tasks]
        try:
            # Asks the threads' futures directly, as their callbacks may be queued after whatever has blocked the loop.
            while not all(task.future.done() for task in tasks):
                left = self._since(tasks) + seconds - time.monotonic()
                if left <= 0:
                    break
                await asyncio.wait([one for one in done if not one.done()], timeout=left)
            return [_outcome(task.future, seconds) for task in tasks]
        finally:
            for one in done:
                one.cancel()

    def _since(self, tasks: Sequence[_Task]) -> float:
        """When the first of them began; while they wait, when a thread last began something; or now."""
        begun = [task.begun for task in tasks if task.begun is not None]
        if begun:
            return min(begun)
        # Of copies: a thread may begin or end something meanwhile.
        running = [one.begun for one in tuple(self._running.values()) if not one.future.done()]
        if len(running) < self._most:
            return time.monotonic()
        return max((begun for begun in running if begun is not None), default=time.monotonic())

    def _put(self, task: _Task) -> None:
        with self._changing:
            if self._is_shut:
                raise RuntimeError(f"the threads {self._name!r} were let go of")
            self._queue.put(task)
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads)}"
                given = (self._queue, self._idle, self._running)
                thread = threading.Thread(target=_serve, args=given, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads when nothing is left to do; with `cancel_futures`, after their current tasks."""
        with self._changing:
            self._is_shut = True
            with contextlib.suppress(Empty):
                while cancel_futures:
                    if (task := self._queue.get_nowait()) is not None:
                        task.future.cancel()
            _let_go(self._queue, self._threads)
        if wait:
            self.join()

    def join(self, until: float = float("inf")) -> None:
        """Wait for the threads to end after `shutdown`, until this time of `time.monotonic`."""
        for thread in self._threads:
            thread.join(min(threading.TIMEOUT_MAX, max(0.0, until - time.monotonic())))


class NoTurn(Exception):
    """All threads that somebody may have at a time are at work."""


class SharedThreads:
    """Threads of which nobody has more than some at a time; the rest of its calls waits, and nobody else's."""

    def __init__(self, threads: DaemonThreads, most_each: int) -> None:
        self._threads = threads
        self._most_each = most_each
        self._turns: weakref.WeakValueDictionary[Hashable, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def run(self, whose: Hashable, seconds: float, work: Callable[[], _Result]) -> _Result:
        """The result of a call, as DaemonThreads.run gives it; raises NoTurn if all that it may have work longer than
        so many seconds. A thread counts until its work ends, also if nobody waits for it any more."""
        turns = self._turns.setdefault(whose, asyncio.Semaphore(self._most_each))
        try:
            async with asyncio.timeout(seconds):
                await turns.acquire()
        except TimeoutError:
            raise NoTurn from None
        loop = asyncio.get_running_loop()

        def ended() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before its thread
                loop.call_soon_threadsafe(turns.release)

        try:
            (found,) = await self._threads.run_all(seconds, [work], ended)
        except RuntimeError:  # the threads were let go of
            turns.release()
            raise
        if isinstance(found, BaseException):
            raise found
        return found


_pools: Final[weakref.WeakSet[DaemonThreads]] = weakref.WeakSet()


def _serve(queue: _Queue, idle: threading.Semaphore, running: dict[threading.Thread, _Task]) -> None:
    """The body of a thread; it holds no reference to the pool, so that a forgotten pool ends with its threads."""
    own = threading.current_thread()
    while True:
        try:
            task = queue.get_nowait()
        except Empty:
            idle.release()
            task = queue.get()
        if task is None:
            return
        running[own] = task
        task.run()
        del running[own], task  # its objects must not live until the next task


def _outcome(future: Future[_Result], seconds: float) -> _Result | BaseException:
    if not future.done():
        return TooSlow(f"no answer in {seconds:g} s")
    try:
        return future.result()
    except BaseException as error:
        return error


def _let_go(queue: _Queue, threads: Sequence[threading.Thread]) -> None:
    for _ in threads:
        queue.put(None)


@atexit.register
def _leave() -> None:
    """A daemon thread that resumes while the interpreter is torn down could crash the process."""
    pools, until = list(_pools), time.monotonic() + EXIT_SECONDS
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)
    for pool in pools:
        pool.join(until)


class Recurring:
    """One piece of work, over and over."""

    def __init__(self, once: Callable[[], Awaitable[None]], name: str) -> None:
        """`once`: waits until the work is due, and does it; never raises. `name`: of the task, for a list of
        them."""
        self._once = once
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Do it from now on."""
        self._is_stopping = False
        self._task = asyncio.create_task(self._for_ever(), name=self._name)

    async def stop(self) -> None:
        """Do it no more; what is under way is cancelled. Does nothing if it was never started."""
        self._is_stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _for_ever(self) -> None:
        while not self._is_stopping:
            await self._once()


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
