"""Threads that need no join."""

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from functools import partial
from textwrap import dedent

import pytest
from support.waiting import PATIENCE_SECONDS

from proxy.shell.resources import DaemonThreads, Recurring, TooSlow


def ran(program, *arguments):
    """Output of a program, which has to exit on its own."""
    command = [sys.executable, "-c", dedent(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_done_comes_back_and_so_does_what_went_wrong():
    threads = DaemonThreads(2, "some")
    assert threads.submit(divmod, 7, 2).result(PATIENCE_SECONDS) == (3, 1)
    assert threads.submit(dict, a=1).result(PATIENCE_SECONDS) == {"a": 1}
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result(PATIENCE_SECONDS)
    threads.shutdown()


def test_there_are_no_more_threads_than_are_needed_nor_than_are_allowed():
    threads = DaemonThreads(2, "counted")
    for _ in range(20):
        name = threads.submit(lambda: threading.current_thread().name).result(PATIENCE_SECONDS)
        assert threads._idle.acquire(timeout=PATIENCE_SECONDS)  # it has given its result, and is about to be idle
        threads._idle.release()
        assert name == "counted-0"
    leave, begun = threading.Event(), threading.Semaphore(0)

    def hang():
        begun.release()
        leave.wait()
        return threading.current_thread().name

    hanging = [threads.submit(hang) for _ in range(5)]
    for _ in range(2):
        assert begun.acquire(timeout=PATIENCE_SECONDS)
    assert not begun.acquire(blocking=False)
    leave.set()
    assert {one.result(PATIENCE_SECONDS) for one in hanging} == {"counted-0", "counted-1"}
    threads.shutdown()


def test_what_waits_for_its_turn_is_cancelled_and_what_runs_is_not():
    threads = DaemonThreads(1, "busy")
    leave, begun = threading.Event(), threading.Event()
    running = threads.submit(lambda: (begun.set(), leave.wait()))
    assert begun.wait(PATIENCE_SECONDS)
    waiting = threads.submit(divmod, 7, 2)
    threads.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        waiting.result(PATIENCE_SECONDS)
    leave.set()
    assert running.result(PATIENCE_SECONDS) == (None, True)
    with pytest.raises(RuntimeError, match="busy"):
        threads.submit(divmod, 7, 2)
    threads.shutdown()


def test_what_waits_for_its_turn_is_done_before_the_threads_go():
    threads = DaemonThreads(1, "thorough")
    done = [threads.submit(divmod, number, 2) for number in range(50)]
    threads.shutdown()
    assert all(one.done() for one in done)


def test_threads_that_are_forgotten_go():
    threads = DaemonThreads(2, "forgotten")
    threads.submit(divmod, 7, 2).result(PATIENCE_SECONDS)
    (thread,) = threads._threads
    del threads
    gc.collect()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_a_process_ends_while_a_thread_hangs_and_after_what_is_nearly_done():
    output = ran(
        """
        import atexit, threading
        from proxy.shell.resources import threads
        threads.EXIT_SECONDS /= 4  # one of the two hangs for all of it
        some, nearly = threads.DaemonThreads(2, "some"), threading.Event()
        some.submit(threading.Event().wait)
        some.submit(lambda: (nearly.wait(), print("done", flush=True)))
        atexit.register(nearly.set)
        """
    )
    assert output == "done\n"


def test_a_process_ends_while_the_store_of_the_artifacts_hangs(tmp_path):
    (tmp_path / ".meta").mkdir()
    os.mkfifo(tmp_path / ".meta" / "tool_sh_0123456789abcdef.txt.5eed.json")  # opening it waits for a writer
    output = ran(
        """
        import asyncio, sys
        from pathlib import Path
        from proxy.errors import ArtifactStoreUnavailable
        from proxy.shell.artifacts import reader
        from proxy.shell.artifacts.folder import PrivateFolder
        from proxy.shell.resources import threads
        reader.READ_SECONDS = reader.SEARCH_SECONDS = threads.EXIT_SECONDS = 0.05
        try:
            reading = reader.ArtifactReader(PrivateFolder(Path(sys.argv[1])), retention_days=1)
            asyncio.run(reading.find("tool_sh_0123456789abcdef.txt", "5eed"))
        except ArtifactStoreUnavailable as error:
            print(error.message)
        """,
        tmp_path,
    )
    assert "no answer" in output


async def test_the_wait_for_a_thread_does_not_count():
    threads = DaemonThreads(2, "loaded")
    # Each takes a small part of what it may, all of them together more.
    reported = await asyncio.gather(*(threads.run(1, time.sleep, 0.04) for _ in range(60)))
    assert reported == [None] * 60
    threads.shutdown()


async def test_what_takes_too_long_itself_is_given_up_and_the_others_are_not():
    threads, leave = DaemonThreads(2, "one hangs"), threading.Event()
    slow = asyncio.create_task(threads.run(0.05, leave.wait))
    quick = [await threads.run(10, divmod, 7, 2) for _ in range(5)]
    with pytest.raises(TooSlow):
        await slow
    assert quick == [(3, 1)] * 5
    leave.set()
    threads.shutdown()


async def test_nothing_waits_behind_threads_that_all_hang():
    threads, leave = DaemonThreads(2, "all hang"), threading.Event()
    hanging = [asyncio.create_task(threads.run(0.05, leave.wait)) for _ in range(2)]
    behind = [asyncio.create_task(threads.run(0.05, divmod, 7, 2)) for _ in range(3)]
    for one in (*hanging, *behind):
        with pytest.raises(TooSlow):
            await one
    leave.set()
    assert await threads.run(PATIENCE_SECONDS, divmod, 7, 2) == (3, 1)
    threads.shutdown()


async def test_abandoned_work_is_not_begun():
    threads, leave, done = DaemonThreads(1, "left"), threading.Event(), []
    threads.submit(leave.wait)
    left = asyncio.create_task(threads.run(PATIENCE_SECONDS, done.append, 1))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    leave.set()
    await threads.run(PATIENCE_SECONDS, done.append, 2)
    assert done == [2]
    threads.shutdown()


async def test_errors_are_logged():
    threads = DaemonThreads(1, "wrong")
    with pytest.raises(ZeroDivisionError):
        await threads.run(PATIENCE_SECONDS, divmod, 7, 0)
    threads.shutdown()
    with pytest.raises(RuntimeError):
        await threads.run(PATIENCE_SECONDS, divmod, 7, 2)


async def test_several_calls_share_one_limit_from_when_the_first_began():
    threads, leave = DaemonThreads(2, "together"), threading.Event()
    calls = [partial(divmod, 7, 2), leave.wait, leave.wait, partial(divmod, 7, 0)]
    quick, *hanging, behind = await threads.run_all(0.05, calls)
    assert quick == (3, 1)
    assert [type(one) for one in (*hanging, behind)] == [TooSlow] * 3
    leave.set()
    (failed,) = await threads.run_all(PATIENCE_SECONDS, [partial(divmod, 7, 0)])
    assert isinstance(failed, ZeroDivisionError)
    threads.shutdown()


async def test_it_is_done_again_and_again_until_it_is_stopped():
    done = asyncio.Queue[None]()

    async def once():
        await asyncio.sleep(0)
        done.put_nowait(None)

    work = Recurring(once, "counting")
    work.start()
    for _ in range(3):
        await done.get()
    assert "counting" in {task.get_name() for task in asyncio.all_tasks()}
    await work.stop()
    assert "counting" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_it_ends_even_if_the_cancellation_is_swallowed_and_may_be_started_again():
    begun = asyncio.Queue[None]()

    async def deaf():
        begun.put_nowait(None)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    work = Recurring(deaf, "deaf")
    for _ in range(2):
        work.start()
        await begun.get()
        await work.stop()
        assert begun.empty()


async def test_what_was_never_started_can_be_stopped():
    async def never():
        raise AssertionError

    assert await Recurring(never, "never").stop() is None
