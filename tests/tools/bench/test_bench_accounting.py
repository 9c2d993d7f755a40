"""Resource usage of real process trees."""

import os
import subprocess
import sys

import pytest

from tools.bench.accounting import cpu_seconds, family, resident_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and Linux's clocks")

_BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"

# A parent whose one child has ended, whose other lives, and one of whose threads is over.
_FAMILY = f"""
import subprocess, sys, threading, time
def burn():
    end = time.thread_time() + 0.05
    while time.thread_time() < end: pass
thread = threading.Thread(target=burn); thread.start(); thread.join()
subprocess.run([sys.executable, "-c", {_BURN.format(seconds=0.2)!r}])
child = subprocess.Popen([sys.executable, "-c", {_BURN.format(seconds=0.2)!r} + "print(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
input()
child.communicate(b"\\n")
"""


@pytest.fixture
def parent():
    """The pids of a parent and of its living child."""
    with subprocess.Popen([sys.executable, "-c", _FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process.pid, int(process.stdout.readline())
        process.communicate(b"\n")


def test_threads_children_and_children_that_ended_all_count(parent):
    pid, child = parent
    assert list(family(pid)) == [pid, child]
    assert cpu_seconds(child) >= 0.2
    # 0.05 of a thread that is over, 0.2 of a child that ended (in ticks of a hundredth), 0.2 of one that lives.
    assert cpu_seconds(pid) >= 0.05 + 0.18 + 0.2


def test_memory_is_that_of_the_whole_family(parent):
    pid, child = parent
    assert resident_bytes(pid) > resident_bytes(child) > 1_000_000


def test_a_process_that_is_gone_has_used_nothing_and_raises_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert cpu_seconds(process.pid) == 0.0
    assert resident_bytes(process.pid) == 0


def test_our_own_clock_is_read_like_any_other():
    before = cpu_seconds(os.getpid())
    sum(range(200_000))
    assert cpu_seconds(os.getpid()) > before > 0
