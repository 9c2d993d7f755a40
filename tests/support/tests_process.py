"""A process that runs tests has the same examples in every run, so that a red test is red for everybody, and is small.

`HYPOTHESIS_PROFILE=explore make test` looks for new ones.
"""

from __future__ import annotations

import ctypes
import gc
import linecache
import os
import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from _pytest.doctest import DoctestModule
from httpx._transports import default as transports
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from proxy import app, reloading
from proxy.shell.models import tokenizer
from proxy.shell.resources.workload import _malloc_trim, tune_allocator

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
trim = _malloc_trim()
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
if "HYPOTHESIS_PROFILE" not in os.environ:
    # Hypothesis tries constants that it finds in the modules that are loaded, for 170 MB and 2 s in a fresh checkout:
    # what a test tries would depend on which others run.
    providers._get_local_constants = lambda: providers._local_constants


@cache
def _usual_context(trust_env: bool, *_named: str | None) -> ssl.SSLContext:
    return create_ssl_context(trust_env=trust_env)


def _shared_context(verify: ssl.SSLContext | bool = True, cert: None = None, trust_env: bool = True) -> ssl.SSLContext:
    """To read the certificates of all authorities takes 20 ms, and hundreds of clients of HTTP are made: they are read
    once for all that name no others."""
    if verify is not True or cert is not None:
        return create_ssl_context(verify, cert, trust_env)
    return _usual_context(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


create_ssl_context: Final = httpx.create_ssl_context
httpx.create_ssl_context = transports.create_ssl_context = _shared_context

_TESTS: Final = Path(__file__).parents[1]
_PATIENCE_MODULES: Final = 6
_idle_modules: Final[list[None]] = []
"""One for each module since a vocabulary was asked for."""
_M_ARENA_MAX: Final = -8
"""glibc's number of the option: how many heaps threads may have of their own."""
with suppress(OSError, AttributeError, TypeError):  # another C library
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)  # hundreds of servers on threads would each leave holes in a heap


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Nothing is scanned meanwhile: every test stays, and each scan would see more of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Any:
    """To look for doctests is to import a module: only where some are, and tests have none."""
    found = yield
    if file_path.is_relative_to(_TESTS) or b">>> " not in file_path.read_bytes():
        return [one for one in found if not isinstance(one, DoctestModule)]
    return found


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays: no collection scans it. Each application that starts in a process of its own does
    the same; started here, it would scan all that pytest holds, hundreds of times."""
    linecache.clearcache()  # pytest has looked where each test stands
    gc.collect()
    gc.freeze()
    tune_allocator()
    if trim is not None:
        trim(0)
    app.tune_interpreter = reloading.forget_what_is_gone = lambda: None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The examples of a property refer to each other in circles, which add up to a hundred megabytes in a module."""
    if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
        gc.collect()


@pytest.fixture(autouse=True, scope="module")
def memory_given_back() -> Iterator[None]:
    """What the tests of a module have left goes back to the system: free blocks, which the C library would keep, and
    the vocabulary of a tokenizer, 50 MB. It takes 0.6 s to load and to let go, and modules that count stand near each
    other: it stays for some that do not. Two never stay."""
    before = _counted()
    yield
    _idle_modules.append(None)
    if _counted() != before:
        _idle_modules.clear()
    if len(_idle_modules) >= _PATIENCE_MODULES or tokenizer._load.cache_info().currsize > 1:
        tokenizer._load.cache_clear()
    gc.collect()
    if trim is not None:
        trim(0)


def _counted() -> tuple[int, int]:
    """How often a vocabulary was asked for."""
    asked = tokenizer._load.cache_info()
    return asked.hits, asked.misses
