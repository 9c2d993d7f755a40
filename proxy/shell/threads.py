"""Threads for what may never come back: a dead disk, a bucket or a name server that gives no answer.

Rule: the process can end while one of them hangs. For the threads of a `ThreadPoolExecutor` Python waits for ever; for
these it waits a little, so that what is nearly done gets done.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

EXIT_SECONDS: Final = 2.0
"""Longest wait for all threads together when the process ends; to write an artifact takes milliseconds."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class _Task(NamedTuple):
    future: Future[Any]
    work: Callable[[], Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            found = self.work()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(found)


_Queue: TypeAlias = SimpleQueue[_Task | None]
"""None: a thread may go."""


class DaemonThreads(Executor):
    """At most so many threads; each is made when it is needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queue: _Queue = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._changing = threading.Lock()
        self._is_shut = False
        _pools.add(self)
        weakref.finalize(self, _let_go, self._queue, self._threads).atexit = False

    def submit(
        self, work: Callable[_Given, _Result], /, *given: _Given.args, **named: _Given.kwargs
    ) -> Future[_Result]:
        """Have it done. Raises RuntimeError after `shutdown`."""
        future: Future[_Result] = Future()
        with self._changing:
            if self._is_shut:
                raise RuntimeError(f"the threads {self._name!r} were let go of")
            self._queue.put(_Task(future, partial(work, *given, **named)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=_serve, args=(self._queue, self._idle), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads go when nothing is left to do; `cancel_futures`: when they are done with what they do now."""
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
        """Wait for the threads, once they were let go of, until this time of `time.monotonic`."""
        for thread in self._threads:
            thread.join(min(threading.TIMEOUT_MAX, max(0.0, until - time.monotonic())))


_pools: Final[weakref.WeakSet[DaemonThreads]] = weakref.WeakSet()


def _serve(queue: _Queue, idle: threading.Semaphore) -> None:
    """What a thread does; it holds nothing of the pool, so that one that is forgotten goes with its threads."""
    while True:
        try:
            task = queue.get_nowait()
        except Empty:
            idle.release()
            task = queue.get()
        if task is None:
            return
        task.run()
        del task  # what it held must not live until there is another one


def _let_go(queue: _Queue, threads: Sequence[threading.Thread]) -> None:
    for _ in threads:
        queue.put(None)


@atexit.register
def _leave() -> None:
    """A daemon thread that came back while the interpreter is taken apart could bring the process down."""
    pools, until = list(_pools), time.monotonic() + EXIT_SECONDS
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)
    for pool in pools:
        pool.join(until)
