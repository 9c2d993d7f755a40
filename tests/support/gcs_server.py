"""A server of Google's XML API on a socket, and the environment in which it is found.

Moto answers it. The emulator on PyPI (gcp-storage-emulator 2026.7.19) has too little of it: no ETag, no HEAD, DELETE
and listing (501), and it writes over an object that was to be created."""

from __future__ import annotations

import contextlib
import json

import httpx
import pytest

from support.moto_server import moto_server
from support.waiting import PATIENCE_SECONDS


def gcs_server() -> contextlib.AbstractContextManager[str]:
    """The address of an empty server."""
    return moto_server("google")


def new_google_bucket(endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket that is made for it, with credentials in the environment."""
    name = "g-" + name.lower().replace("_", "-")[-50:].strip("-")
    assert httpx.put(f"{endpoint}/{name}", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
    account = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps({**account, "gcs_base_url": endpoint}))
    return f"gs://{name}"
