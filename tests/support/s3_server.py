"""A server that speaks S3 on a socket, and the environment in which it is found."""

from __future__ import annotations

import contextlib

import httpx
import pytest

from support.moto_server import moto_server
from support.waiting import PATIENCE_SECONDS


def s3_server() -> contextlib.AbstractContextManager[str]:
    """The address of an empty server."""
    return moto_server("s3")


def new_bucket(endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket that is made for it, with credentials in the environment."""
    name = name.lower().replace("_", "-")[-60:].strip("-")
    assert httpx.put(f"{endpoint}/{name}", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
    for variable, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(variable, value)
    return f"s3://{name}"
