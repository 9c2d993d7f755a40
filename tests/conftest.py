"""For all tests: the same examples in every run, so that a red test is red for everybody.

`HYPOTHESIS_PROFILE=explore make test` looks for new ones.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(autouse=True, scope="module")
def thawed() -> Iterator[None]:
    """Each application freezes what is loaded when it starts, the circles of the one before it, too; thawed, they can
    be collected. Not after each test, as each start would then scan all that is loaded."""
    yield
    gc.unfreeze()
