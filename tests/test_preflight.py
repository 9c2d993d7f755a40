from __future__ import annotations

import pytest

from proxy.config.upstreams import UpstreamSettings
from proxy.preflight import leads_here


@pytest.mark.parametrize(
    ("upstream", "host", "is_itself"),
    [
        ("http://127.0.0.1:8787/v1", "127.0.0.1", True),
        ("http://localhost:8787/v1", "127.0.0.1", True),
        ("http://127.0.0.1:8787/v1", "0.0.0.0", True),
        ("http://127.0.0.2:8787/v1", "0.0.0.0", True),
        ("http://0.0.0.0:8787/v1", "127.0.0.1", True),
        ("http://127.0.0.1:8788/v1", "127.0.0.1", False),
        ("http://127.0.0.2:8787/v1", "127.0.0.1", False),
        ("http://192.0.2.1:8787/v1", "0.0.0.0", False),
        ("http://no-such-host.invalid:8787/v1", "0.0.0.0", False),
        ("https://127.0.0.1/v1", "127.0.0.1", False),
    ],
)
def test_an_upstream_that_is_the_proxy_itself_is_told_apart(upstream: str, host: str, is_itself: bool) -> None:
    reason = leads_here({"upstream": UpstreamSettings(base_url=upstream)}, host, 8787)
    assert reason == (f"upstream.base_url: must not be the proxy itself, found {upstream}" if is_itself else "")


@pytest.mark.parametrize(("upstream", "port"), [("http://127.0.0.1/v1", 80), ("https://127.0.0.1/v1", 443)])
def test_a_port_that_is_not_named_is_that_of_the_scheme(upstream: str, port: int) -> None:
    assert leads_here({"upstream": UpstreamSettings(base_url=upstream)}, "127.0.0.1", port)


def test_each_of_several_upstreams_is_looked_at_and_named() -> None:
    here, elsewhere = (UpstreamSettings(base_url=f"http://127.0.0.1:{port}/v1") for port in (8787, 8788))
    reason = leads_here({"upstreams[0]": elsewhere, "upstreams[1]": here, "upstream": elsewhere}, "127.0.0.1", 8787)
    assert reason.startswith("upstreams[1].base_url: ")
