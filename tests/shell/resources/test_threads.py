"""Threads that need no join."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from functools import partial
from textwrap import dedent
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs
from support.waiting import PATIENCE_SECONDS, until

from proxy.shell.resources import Threads, TooSlow, recurring


def ran(program, *arguments):
    """Output of a program, which has to exit on its own."""
    command = [sys.executable, "-c", dedent(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_is_done_comes_back_and_so_does_what_went_wrong():
    threads = Threads(2, "some")
    assert await threads.run(PATIENCE_SECONDS, partial(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(PATIENCE_SECONDS, partial(divmod, 7, 0))


async def test_no_more_work_at_a_time_than_is_allowed():
    threads, leave, begun = Threads(2, "counted"), threading.Event(), []
    working = [
        asyncio.create_task(threads.run(PATIENCE_SECONDS, lambda: (begun.append(1), leave.wait()))) for _ in range(5)
    ]
    await until(lambda: len(begun) == 2)
    assert [one.name for one in threading.enumerate()].count("counted") == 2
    leave.set()
    assert await asyncio.gather(*working) == [(None, True)] * 5


def test_a_process_ends_while_a_thread_hangs_and_after_what_is_nearly_done():
    output = ran(
        """
        import asyncio, atexit, threading
        from proxy.shell.resources import threads
        threads.EXIT_SECONDS /= 4  # one of the two hangs for all of it
        nearly = threading.Event()

        async def work():
            some = threads.Threads(2, "some")
            hanging = some.run(0.01, threading.Event().wait)
            writing = some.run(0.01, lambda: (nearly.wait(), print("done", flush=True)))
            await asyncio.gather(hanging, writing, return_exceptions=True)

        asyncio.run(work())
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
        reader._WHOLE_SECONDS = threads.EXIT_SECONDS = 0.05
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
    threads = Threads(2, "loaded")
    # Each takes a small part of what it may, all of them together more.
    reported = await asyncio.gather(*(threads.run(1, partial(time.sleep, 0.04)) for _ in range(60)))
    assert reported == [None] * 60


async def test_what_takes_too_long_itself_is_given_up_and_the_others_are_not():
    threads, leave = Threads(2, "one hangs"), threading.Event()
    slow = asyncio.create_task(threads.run(0.05, leave.wait))
    quick = [await threads.run(10, partial(divmod, 7, 2)) for _ in range(5)]
    with pytest.raises(TooSlow):
        await slow
    assert quick == [(3, 1)] * 5
    leave.set()


async def test_nothing_waits_behind_threads_that_all_hang():
    threads, leave = Threads(2, "all hang"), threading.Event()
    hanging = [asyncio.create_task(threads.run(0.05, leave.wait)) for _ in range(2)]
    behind = [asyncio.create_task(threads.run(0.05, partial(divmod, 7, 2))) for _ in range(3)]
    for one in (*hanging, *behind):
        with pytest.raises(TooSlow):
            await one
    leave.set()
    assert await threads.run(PATIENCE_SECONDS, partial(divmod, 7, 2)) == (3, 1)


async def test_abandoned_work_is_not_begun_and_work_that_is_begun_counts_until_it_ends():
    threads, leave, done = Threads(1, "left"), threading.Event(), []
    ends: list[str] = []
    begun = asyncio.create_task(threads.run(PATIENCE_SECONDS, leave.wait, partial(ends.append, "begun")))
    left = asyncio.create_task(threads.run(PATIENCE_SECONDS, partial(done.append, 1), partial(ends.append, "left")))
    for one in (begun, left):
        await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
    assert ends == ["left"]
    with pytest.raises(TooSlow):
        await threads.run(0.01, partial(done.append, 2))
    leave.set()
    await threads.run(PATIENCE_SECONDS, partial(done.append, 3))
    assert (done, ends) == ([3], ["left", "begun"])


async def test_without_another_thread_nothing_is_taken(monkeypatch):
    threads = Threads(1, "none")
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(RuntimeError, match="start new thread"):
        await threads.run(PATIENCE_SECONDS, partial(divmod, 7, 2))
    monkeypatch.undo()
    assert await threads.run(PATIENCE_SECONDS, partial(divmod, 7, 2)) == (3, 1)


async def test_recurring_work_is_done_again_after_a_failure_which_is_logged():
    done = asyncio.Queue[None]()

    async def once():
        done.put_nowait(None)
        raise KeyError("x")

    with capture_logs() as log:
        task = asyncio.create_task(recurring(0, once))
        for _ in range(3):
            await done.get()
        task.cancel()
        await asyncio.wait([task])
    assert {line["event"] for line in log} == {"recurring_failed"}
    assert task.cancelled()
