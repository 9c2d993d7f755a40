"""A process that runs tests has the same examples in every run, so that a red test is red for everybody, and is small.

`HYPOTHESIS_PROFILE=explore make test` looks for new ones.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import linecache
import logging
import mmap
import os
import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
import structlog
from _pytest.doctest import DoctestModule
from httpx._transports import default as transports
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import engine, providers
from hypothesis.internal.conjecture.data import ConjectureData, Status

from proxy import app, reloading
from proxy.demo import model_server as embedded
from proxy.shell.models import tokenizer
from tools.defects import HasDefect, raise_defects

if TYPE_CHECKING:
    from tiktoken import Encoding

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
if "HYPOTHESIS_PROFILE" not in os.environ:
    # Hypothesis tries constants that it finds in the modules that are loaded, for 170 MB and 2 s in a fresh checkout:
    # what a test tries would depend on which others run.
    providers._get_local_constants = lambda: providers._local_constants
_keep_result = engine.ConjectureRunner._cache


def _keep_result_without_values(self: engine.ConjectureRunner, data: ConjectureData) -> None:
    """A property keeps the results of all its examples, each with every text that was drawn: 130 MB for 300 large
    bodies. Hypothesis reads the texts only to make an example smaller that has failed."""
    if data.status < Status.INTERESTING:
        getattr(data.spans, "span_values", {}).clear()  # older versions have none
    _keep_result(self, data)


engine.ConjectureRunner._cache = _keep_result_without_values

_OPENAI_ENCODING: Final = embedded.ENCODING
# A model in a test counts with gpt-4's vocabulary: loaded, it takes 25 MB, and that of gpt-4o 50, with 75 on the way.
embedded.ENCODING = "cl100k_base"
_make_encoding: Final = tokenizer._load.__wrapped__


@functools.lru_cache(1)
def _load_alone(name: str) -> Encoding:
    """One vocabulary at a time: the other is let go before this one is made."""
    if _load_alone.cache_info().currsize:
        _load_alone.cache_clear()
    give_back()
    return _make_encoding(name)


tokenizer._load = _load_alone


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
_STATM: Final = Path("/proc/self/statm")
_WORTH_BYTES: Final = 8 * 1024 * 1024
"""Growth after which memory is given back; to look costs 10 µs, to give back some milliseconds."""
_least_bytes: Final = [0]
"""Memory of the process when it last returned some."""
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
    linecache.clearcache()  # pytest has looked up each test's line
    collect_and_keep()
    give_back()
    app.tune_interpreter = reloading.forget_what_is_gone = lambda: None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Collect a test's reference cycles: examples of a property add up to a hundred megabytes in a module.
    When much is free, it goes back to the system before the next test takes more."""
    gc.enable()  # the command line works without, and a test that ran it would leave hundreds of others without
    grown = _resident_bytes() - _least_bytes[0] > _WORTH_BYTES
    if grown or (isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)):
        gc.collect()
    if grown:
        give_back()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A test during which a plan has failed, or a traceback was written, has failed, whatever the client saw; one that
    breaks the proxy itself says so with the mark `breaks_the_proxy`."""
    report = yield
    if report.passed and item.get_closest_marker("breaks_the_proxy") is None:
        try:
            for title, text in report.sections:
                if title.startswith(("Captured stderr", "Captured stdout")):
                    raise_defects(text)
        except HasDefect as error:
            report.outcome, report.longrepr = "failed", str(error)
    return report


def collect_and_keep() -> None:
    """What is alive stays, and is not looked at again. Then nothing is, as far as the collector knows: it does not look
    at everything before a quarter more is alive than last time, and a large example may be few objects."""
    gc.collect()
    gc.freeze()
    gc.collect()


def give_back() -> None:
    """Free blocks, which the C library would keep, go back to the system."""
    if trim is not None:
        trim(0)
    _least_bytes[0] = _resident_bytes()


def _resident_bytes() -> int:
    """What the process holds; 0 where the system does not say."""
    try:
        return int(_STATM.read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


@pytest.fixture(autouse=True, scope="module")
def memory_given_back() -> Iterator[None]:
    """What the tests of a module have left goes back to the system: free blocks, which the C library would keep, and
    the vocabulary of a tokenizer, up to 50 MB. It takes up to 0.6 s to load and to let go, and modules that count stand
    near each other: it stays for some that do not."""
    before = _counted()
    yield
    _idle_modules.append(None)
    if _counted() != before:
        _idle_modules.clear()
    if len(_idle_modules) >= _PATIENCE_MODULES:
        tokenizer._load.cache_clear()
    embedded.count.cache_clear()  # it holds a thousand texts
    collect_and_keep()
    give_back()


@pytest.fixture(autouse=True)
def log_of_the_process_is_put_back() -> Iterator[None]:
    """A command, or a server, writes its log to the standard output of its test, which is closed by the next."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield
    if root.handlers != handlers:
        root.handlers[:] = handlers
        structlog.reset_defaults()


@pytest.fixture
def counted_as_gpt_4o(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Models count with the vocabulary of gpt-4o, where that is the subject or the proxy does so, too."""
    assert tokenizer.VOCABULARY_FOLDER.is_dir(), "this checkout has no vocabularies: `make .venv/made` copies them"
    monkeypatch.setattr("proxy.demo.model_server.ENCODING", _OPENAI_ENCODING)
    embedded.count.cache_clear()
    yield
    embedded.count.cache_clear()


def _counted() -> tuple[int, int]:
    """How often a vocabulary was asked for."""
    cache = tokenizer._load.cache_info()
    return cache.hits, cache.misses
