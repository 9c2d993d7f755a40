from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.settings import Settings
from proxy.config.upstreams import UpstreamSettings
from proxy.preflight import create_folder, leads_here, unwritable


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


def test_a_folder_in_which_nothing_can_be_kept_stops_the_start_unless_artifacts_go_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    stated = {"upstream": {"base_url": "http://127.0.0.1:9/v1"}, "data_dir": tmp_path / "file"}
    problem = unwritable(Settings(**stated))
    assert problem is not None
    assert str(tmp_path / "file") in problem
    assert "data_dir" in problem
    assert unwritable(Settings(**stated, artifacts={"url": "s3://bucket/prefix"})) is None
    assert unwritable(Settings(**stated, artifacts={"url": f"file://{tmp_path}/elsewhere"})) is None
    assert unwritable(Settings(**{**stated, "data_dir": tmp_path / "new"})) is None


@pytest.mark.parametrize(
    ("stated", "place"),
    [
        ({}, "kept/tool-output"),
        ({"folder": "there"}, "there"),
        ({"url": "file:///there"}, "/there"),
        ({"url": "s3://bucket/prefix"}, "s3://bucket/prefix"),
    ],
)
def test_artifacts_lie_in_the_data_folder_unless_another_place_is_set(stated, place):
    settings = Settings(data_dir=Path("kept"), artifacts=stated)
    assert place in create_folder(settings).address
