"""The shared limit of all requests, and memory returned to the system."""

import asyncio
import gc
import platform
import subprocess
import sys
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import PATIENCE_SECONDS

from proxy.shell.resources import Workload, give_memory_back, workload

SMALL = 64 * 1024


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


def taking(workload, share, size):
    return asyncio.create_task(workload.take(share, size))


async def test_requests_with_room_proceed_at_once():
    workload = Workload(100, small_bytes=0)
    shares = [workload.share() for _ in range(10)]
    await asyncio.gather(*(workload.take(share, 10) for share in shares))
    assert workload.done_bytes == 0
    for share in shares:
        share.release()
        share.release()
    assert workload.done_bytes == 100


async def test_who_comes_when_it_is_too_much_waits_in_order():
    workload = Workload(100, small_bytes=0)
    first, second, third, fourth = (workload.share() for _ in range(4))
    await workload.take(first, 90)
    waiting = [taking(workload, share, 50) for share in (second, third, fourth)]
    await settled()
    # One of them always proceeds, or none would ever finish.
    assert [task.done() for task in waiting] == [True, False, False]
    first.release()
    await settled()
    assert [task.done() for task in waiting] == [True, False, False]
    second.release()
    await settled()
    assert [task.done() for task in waiting] == [True, True, True]


async def test_one_request_over_the_bound_proceeds_alone():
    workload = Workload(100, small_bytes=0)
    large, other = workload.share(), workload.share()
    for _ in range(5):
        await workload.take(large, 60)
    waiting = taking(workload, other, 10)
    await settled()
    assert not waiting.done()
    large.release()
    await waiting


async def test_halves_of_bodies_do_not_wait_for_each_other():
    workload = Workload(100, small_bytes=0)

    async def request():
        share = workload.share()
        for _ in range(4):
            await workload.take(share, 30)
            await asyncio.sleep(0)
        share.release()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(request() for _ in range(20)))
    assert workload.done_bytes == 20 * 4 * 30


async def test_who_leaves_while_he_waits_leaves_room():
    workload = Workload(100, small_bytes=0)
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
def test_everybody_comes_to_an_end(bodies):
    workload = Workload(100, small_bytes=0)
    at_once: list[int] = [0]

    async def request(pieces):
        share = workload.share()
        for piece in pieces:
            await workload.take(share, piece)
        at_once[0] = max(at_once[0], len(pieces) and share.held_bytes)
        await asyncio.sleep(0)
        share.release()

    async def all_of_them():
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*map(request, bodies))

    asyncio.run(all_of_them())
    assert workload.done_bytes == sum(map(sum, bodies))
    assert at_once[0] == max(map(sum, bodies), default=0)


async def test_pieces_of_a_body_are_counted_as_they_come():
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"abc", "more_body": True},
        {"type": "http.request", "body": b"de"},
        {"type": "http.disconnect"},
    ]
    left = list(messages)

    async def receive():
        return left.pop(0)

    share = Workload(100, small_bytes=0).share()
    assert [await share.next_message(receive, 10) for _ in messages] == messages
    assert share.held_bytes == 5


async def test_a_small_request_never_waits():
    workload = Workload(100)
    large, waiting, small = (workload.share() for _ in range(3))
    await workload.take(large, SMALL + 1)
    held_up = taking(workload, waiting, SMALL + 1)
    await settled()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await workload.take(small, SMALL)
    assert not held_up.done()
    large.release()
    await held_up


class Sender:
    """Sends a body in pieces given by the test."""

    def __init__(self, workload, pause_seconds=1000):
        self.share = workload.share()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(pause_seconds))

    async def _read(self, pause_seconds):
        while True:
            await self.share.next_message(self._receive, pause_seconds)

    async def _receive(self):
        return {"type": "http.request", "body": await self._pieces.get(), "more_body": True}

    async def send(self, size):
        self._pieces.put_nowait(b"x" * size)
        await settled()

    async def is_ended(self):
        """Whether its wait was ended as too long."""
        await settled()
        return self._reading.done() and isinstance(self._reading.exception(), TimeoutError)

    def leave(self):
        self._reading.cancel()
        self.share.release()


async def test_who_sends_slowly_loses_its_place_while_others_wait():
    workload = Workload(100_000)
    slow, quick, small = Sender(workload), Sender(workload), Sender(workload)
    await slow.send(70_000)
    await quick.send(70_000)  # it proceeds, as one always does
    await small.send(10)
    waiting = taking(workload, workload.share(), 70_000)
    workload.end_slow()
    late = Sender(workload)
    for sender, size in ((quick, 16 * 1024), (small, 16 * 1024 - 1), (late, 1)):
        assert not await sender.is_ended()
        await sender.send(size)
    workload.end_slow()
    assert [await sender.is_ended() for sender in (slow, quick, small, late)] == [True, False, True, False]
    for sender in (slow, quick, small):
        sender.leave()
    await waiting
    workload.end_slow()
    workload.end_slow()
    assert not await late.is_ended()  # no request is queued any more
    late.leave()


async def test_time_in_the_queue_does_not_count_against_a_sender():
    workload = Workload(100_000)
    first, second, third = (Sender(workload) for _ in range(3))
    for sender in (first, second, third):
        await sender.send(90_000)
    for _ in range(3):
        workload.end_slow()
    assert [await sender.is_ended() for sender in (first, second, third)] == [True, True, False]
    first.leave()
    second.leave()
    await settled()
    waiting = taking(workload, workload.share(), 90_000)
    await settled()
    workload.end_slow()
    assert not await third.is_ended()
    third.leave()
    await waiting


async def test_who_holds_much_has_to_send_more():
    workload = Workload(1_000_000)
    large = Sender(workload)
    await large.send(10_000_000)
    waiting = taking(workload, workload.share(), 70_000)
    other = taking(workload, workload.share(), 70_000)
    await settled()
    for _ in range(2):
        await large.send(large.share.held_bytes // 32)
        workload.end_slow()
        assert not await large.is_ended()
    await large.send(large.share.held_bytes // 32 // 2)
    workload.end_slow()
    assert await large.is_ended()
    large.leave()
    await asyncio.gather(waiting, other)


@pytest.mark.parametrize(("worked", "trimmed"), [(4 * 2**20, [0, 0]), (1, [0])])
async def test_memory_is_given_back_after_the_start_and_after_large_requests(worked, trimmed, monkeypatch):
    monkeypatch.setattr("proxy.shell.resources.workload.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("proxy.shell.resources.workload.STARTED_SECONDS", (0.0,))
    seen: list[int] = []
    monkeypatch.setattr("proxy.shell.resources.workload._malloc_trim", lambda: lambda pad: seen.append(pad) or 1)
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


async def test_without_such_a_c_library_nothing_is_given_back(monkeypatch):
    monkeypatch.setattr("proxy.shell.resources.workload._malloc_trim", lambda: None)
    assert await give_memory_back(Workload()) is None


HOLES = """if True:
    import sys
    from pathlib import Path
    from proxy.shell.resources.workload import tune_allocator
    resident = lambda: int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
    if sys.argv[1] == "apart":
        tune_allocator()
    before, first = resident(), b"x" * 20_000_000
    del first  # which makes glibc expect such blocks to come and go
    large = [b"x" * 5_000_000 for _ in range(20)]
    above = b"x" * 200_000
    large.clear()
    print(resident() - before)
"""


FREED_BY_A_THREAD = """if True:
    import ctypes, sys, threading
    from pathlib import Path
    from proxy.shell.resources import workload
    resident = lambda: int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
    if sys.argv[1] == "a heap each":
        workload.ARENAS = 8
    workload.tune_allocator()
    def work():
        blocks = [bytearray(3_000) for _ in range(4_000)]
        del blocks
        done.set()
        end.wait()
    done, end, before = threading.Event(), threading.Event(), resident()
    thread = threading.Thread(target=work)
    thread.start()
    done.wait()
    ctypes.CDLL(None).malloc_trim(0)
    print(resident() - before)
    end.set()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_what_a_thread_has_freed_can_be_given_back():
    held = {
        how: int(subprocess.run([sys.executable, "-c", FREED_BY_A_THREAD, how], check=True, capture_output=True).stdout)
        for how in ("one heap", "a heap each")
    }
    assert held["one heap"] < 2_000_000 < 8_000_000 < held["a heap each"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_large_blocks_of_memory_leave_no_holes():
    held = {
        how: int(subprocess.run([sys.executable, "-c", HOLES, how], check=True, capture_output=True).stdout)
        for how in ("apart", "as it comes")
    }
    assert held["apart"] < 10_000_000 < 80_000_000 < held["as it comes"]


class _Held:
    """An object that only a reference cycle keeps alive."""

    def __init__(self):
        self.itself = self


def test_a_server_that_starts_scans_nothing_any_more_of_what_it_has_loaded():
    """The one place where this is tried in the process of the tests: tests_process.py keeps applications from it."""
    tune, forget = workload.tune_interpreter, workload.forget_what_is_gone
    before = gc.get_threshold(), sys.getswitchinterval()
    try:
        held: list[object] = []
        held.append(held)  # a reference cycle
        assert any(one is held for one in gc.get_objects())
        tune()
        # Read back it has lost some nanoseconds.
        assert abs(sys.getswitchinterval() - 0.0005) < 1e-6 < before[1]
        assert not any(one is held for one in gc.get_objects())
        assert (gc.get_threshold(), gc.isenabled()) == ((10_000, 20, 20), True)
        gone = weakref.ref(_Held())
        assert gone() is not None
        forget()
        assert gone() is None
        assert not any(one is held for one in gc.get_objects())
    finally:
        gc.set_threshold(*before[0])
        sys.setswitchinterval(before[1])
