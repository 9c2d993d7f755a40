"""A server that speaks S3 on a socket, and the environment in which it is found."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

_PROGRAM: Final = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://%s:%s" % server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The address of an empty server: a process of its own, as one that runs tests would keep 43 MB of it."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().decode().strip()
            assert address, "the server does not start"
            yield address
        finally:
            server.kill()


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
