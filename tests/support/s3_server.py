"""A server that speaks S3 on a socket, and the environment in which it is found."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import httpx
import pytest


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The address of an empty server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def new_bucket(endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket that is made for it, with credentials in the environment."""
    name = name.lower().replace("_", "-")[-60:].strip("-")
    assert httpx.put(f"{endpoint}/{name}", trust_env=False).status_code == 200
    for variable, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(variable, value)
    return f"s3://{name}"
