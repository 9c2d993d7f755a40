from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.asked_upstreams import Upstreams, asked_upstreams


@pytest.fixture
def upstreams() -> Iterator[Upstreams]:
    """All that the proxy asks about models; there is no network."""
    with asked_upstreams() as found:
        yield found
