"""For all tests: the same examples in every run, so that a red test is red for everybody.

`HYPOTHESIS_PROFILE=explore make test` looks for new ones.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from proxy import app, reloading
from proxy.shell.models import tokenizer
from proxy.shell.resources.workload import _malloc_trim, keep_large_blocks_apart

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
trim = _malloc_trim()
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays: no collection scans it. Each application that starts in a process of its own does
    the same; started here, it would scan all that pytest holds, hundreds of times."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    keep_large_blocks_apart()
    app.tune_interpreter = functools.wraps(app.tune_interpreter)(lambda: None)
    reloading.forget_what_is_gone = functools.wraps(app.forget_what_is_gone)(lambda: None)


@pytest.fixture(autouse=True, scope="module")
def memory_given_back() -> Iterator[None]:
    """What the tests of a module have left goes back to the system: the vocabularies of tokenizers, a hundred
    megabytes each, and free blocks, which the C library would keep."""
    yield
    tokenizer._load.cache_clear()
    gc.collect()
    if trim is not None:
        trim(0)
