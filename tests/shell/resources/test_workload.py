"""The shared limit of all requests, and an interpreter tuned for a server."""

import asyncio
import gc
import platform
import subprocess
import sys
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import PATIENCE_SECONDS, let_pass

from proxy.shell.resources import Share, Workload, give_memory_back, workload

SMALL = 64 * 1024


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


def taking(share, size):
    return asyncio.create_task(share.take(size))


async def test_who_comes_when_it_is_too_much_waits_and_one_of_them_always_proceeds():
    workload = Workload(100, small_bytes=0)
    first, second, third, fourth = (Share(workload) for _ in range(4))
    await first.take(90)
    waiting = [taking(share, 50) for share in (second, third, fourth)]
    await settled()
    assert [task.done() for task in waiting] == [True, False, False]
    assert workload.queued == 2
    first.release()
    await settled()
    assert [task.done() for task in waiting] == [True, True, False]
    second.release()
    second.release()
    await settled()
    assert [task.done() for task in waiting] == [True, True, True]
    assert (workload.queued, workload.problem) == (0, None)


async def test_one_request_over_the_bound_proceeds_alone():
    workload = Workload(100, small_bytes=0)
    large, other = Share(workload), Share(workload)
    for _ in range(5):
        await large.take(60)
    waiting = taking(other, 10)
    await settled()
    assert not waiting.done()
    assert workload.problem == "1 requests wait for room: 300 bytes are being read and planned"
    large.release()
    await waiting


async def test_who_leaves_while_he_waits_leaves_room():
    workload = Workload(100, small_bytes=0)
    shares = [Share(workload) for _ in range(4)]
    await shares[0].take(100)
    waiting = [taking(share, 100) for share in shares[1:]]
    await settled()
    waiting[1].cancel()
    await settled()
    shares[0].release()
    shares[1].release()
    await waiting[2]
    assert workload.queued == 0


@given(st.lists(st.lists(st.integers(1, 80), max_size=4), max_size=12))
def test_everybody_comes_to_an_end_and_no_more_than_the_bound_and_one_are_held(bodies):
    workload = Workload(100, small_bytes=0)
    held: list[int] = []
    shares = [Share(workload) for _ in bodies]

    async def request(share, pieces):
        for piece in pieces:
            await share.take(piece)
            held.append(sum(sorted(one.held_bytes for one in shares)[:-1]))
            await asyncio.sleep(0)
        share.release()

    async def all_of_them():
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*map(request, shares, bodies))

    asyncio.run(all_of_them())
    assert max(held, default=0) <= 100
    assert workload.queued == 0


async def test_a_small_request_never_waits():
    workload = Workload(100)
    large, waiting, small = (Share(workload) for _ in range(3))
    await large.take(SMALL + 1)
    held_up = taking(waiting, SMALL + 1)
    await settled()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await small.take(SMALL)
    assert not held_up.done()
    large.release()
    await held_up


class Sender:
    """Sends a body in pieces given by the test."""

    def __init__(self, workload):
        self.share = Share(workload)
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    async def _read(self):
        while True:
            await self.share.next_message(self._receive, 1000)

    async def _receive(self):
        return {"type": "http.request", "body": await self._pieces.get(), "more_body": True}

    async def send(self, size, after_seconds=0.0):
        let_pass(after_seconds)
        self._pieces.put_nowait(b"x" * size)
        await settled()

    async def is_ended(self):
        """Whether its wait was ended as too long."""
        await asyncio.sleep(0.001)
        return self._reading.done() and isinstance(self._reading.exception(), TimeoutError)

    async def leave(self):
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self.share.release()


@pytest.mark.parametrize(
    ("held_bytes", "each_bytes", "is_ended"),
    [(70_000, 5_000, True), (70_000, 9_000, False), (10_000_000, 100_000, True), (10_000_000, 180_000, False)],
)
async def test_who_sends_slowly_loses_its_place_while_others_wait(held_bytes, each_bytes, is_ended):
    """Within 5 s it has to send 16 KB, or a 32nd of what it has sent already."""
    workload = Workload(50_000)
    slow = Sender(workload)
    await slow.send(held_bytes)
    await slow.send(1, after_seconds=400.0)
    assert not await slow.is_ended()  # nobody waits
    waiting = taking(Share(workload), 70_000)
    await settled()
    for _ in range(6):
        await slow.send(each_bytes, after_seconds=2.0)
    let_pass(2.0)
    assert await slow.is_ended() is is_ended
    await slow.leave()
    await waiting


async def test_a_pause_before_others_wait_does_not_count_against_a_sender():
    workload = Workload(50_000)
    slow = Sender(workload)
    await slow.send(70_000)
    await settled()
    let_pass(400.0)
    waiting = taking(Share(workload), 70_000)
    await settled()
    await slow.send(1)
    assert not await slow.is_ended()
    await slow.leave()
    await waiting


async def test_the_wait_for_room_does_not_count_against_a_sender():
    workload = Workload(100_000)
    large, held_up = Sender(workload), Sender(workload)
    await large.send(200_000)
    await held_up.send(90_000)
    let_pass(400.0)
    await large.leave()
    await settled()
    other = taking(Share(workload), 70_000)
    await settled()
    await held_up.send(20_000, after_seconds=3.0)
    assert not await held_up.is_ended()
    await held_up.leave()
    await other


@pytest.mark.parametrize(("worked", "trimmed"), [(4 * 2**20, [0, 0]), (1, [0])])
async def test_memory_is_given_back_after_the_start_and_after_large_requests(worked, trimmed, monkeypatch):
    monkeypatch.setattr("proxy.shell.resources.workload.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("proxy.shell.resources.workload.STARTED_SECONDS", (0.0,))
    seen: list[int] = []
    monkeypatch.setattr("proxy.shell.resources.workload._malloc_trim", lambda: lambda pad: seen.append(pad) or 1)
    workload = Workload()
    giving = asyncio.create_task(give_memory_back(workload))
    await settled()
    share = Share(workload)
    await share.take(worked)
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
@pytest.mark.parametrize(
    ("program", "tuned", "untuned", "most", "least"),
    [
        (FREED_BY_A_THREAD, "one heap", "a heap each", 2_000_000, 8_000_000),
        (HOLES, "apart", "as it comes", 10_000_000, 80_000_000),
    ],
    ids=["what a thread has freed can be given back", "large blocks leave no holes"],
)
def test_of_memory(program, tuned, untuned, most, least):
    ran = (
        subprocess.run([sys.executable, "-c", program, how], check=True, capture_output=True)
        for how in (tuned, untuned)
    )
    held, held_untuned = (int(one.stdout) for one in ran)
    assert held < most < least < held_untuned


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
