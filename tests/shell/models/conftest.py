"""Upstreams that are asked about their models without sockets."""

from __future__ import annotations

import pytest
from support.asked_upstreams import AskedUpstreams

from proxy.shell.models import questions


@pytest.fixture
def upstreams(monkeypatch: pytest.MonkeyPatch) -> AskedUpstreams:
    """They stand in the place of all connections to upstreams."""
    upstreams = AskedUpstreams()
    monkeypatch.setattr(questions, "Upstream", upstreams.connections)
    return upstreams
