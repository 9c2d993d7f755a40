"""Microsoft's emulator of Azure's blobs on a socket, if it is installed (`npm install --global azurite`), and the
environment in which it is found."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import httpx
import pytest

from support.waiting import PATIENCE_SECONDS
from tools.ports import held_port

AZURITE = shutil.which("azurite-blob")
ACCOUNT = "devstoreaccount1"
PUBLISHED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of azurite's only account: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite"""
_VERSION = "2021-12-02"


@contextlib.contextmanager
def azure_server() -> Iterator[str]:
    """The address of an empty account."""
    if AZURITE is None:
        pytest.skip("azurite is not installed")
    flags = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with held_port() as port, _running([AZURITE, "--blobHost", "127.0.0.1", "--blobPort", str(port), *flags], port):
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"


def new_container(endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a container that is made for it, with credentials in the environment."""
    name = "b-" + name.lower().replace("_", "-")[-40:].strip("-")
    date = email.utils.formatdate(usegmt=True)
    signed = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{_VERSION}\n"
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    seal = hmac.new(base64.b64decode(PUBLISHED_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": _VERSION,
        "authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(seal).decode()}",
    }
    answer = httpx.put(
        f"{endpoint}/{name}?restype=container", headers=headers, trust_env=False, timeout=PATIENCE_SECONDS
    )
    assert answer.status_code == 201, answer.text
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", PUBLISHED_KEY)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
    return f"az://{name}"


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        last_try = time.monotonic() + PATIENCE_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, f"{command[0]} has ended"
            assert time.monotonic() < last_try, f"{command[0]} does not listen"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()
