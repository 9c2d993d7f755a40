"""Servers of buckets on sockets, and the environment in which each is found.

Moto answers Google's XML API. The emulator on PyPI (gcp-storage-emulator 2026.7.19) has too little of it: no ETag, no
HEAD, DELETE and listing (501), and it writes over an object that was to be created."""

from __future__ import annotations

import json
from functools import partial

import httpx
import pytest

from support.azure_server import azure_server, new_container
from support.moto_server import moto_server
from support.waiting import PATIENCE_SECONDS


def new_bucket(endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket that is made for it, with credentials in the environment."""
    name = _made(endpoint, name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return f"s3://{name}"


def _new_google_bucket(endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = _made(endpoint, name)
    account = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps({**account, "gcs_base_url": endpoint}))
    return f"gs://{name}"


def _made(endpoint: str, name: str) -> str:
    name = "b-" + name.lower().replace("_", "-")[-50:].strip("-")
    assert httpx.put(f"{endpoint}/{name}", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
    return name


SERVERS = {
    "s3": (partial(moto_server, "s3"), new_bucket),
    "google": (partial(moto_server, "google"), _new_google_bucket),
    "azure": (azure_server, new_container),
}
"""What serves for a block and gives an address, and what makes an empty bucket there and gives its URL."""
