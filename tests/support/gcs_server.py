"""A server of Google's XML API on a socket, and the environment in which it is found.

Google's client speaks that API, which is made like S3's
(https://cloud.google.com/storage/docs/interoperability), so moto answers it but for one header. The emulator on PyPI
(gcp-storage-emulator 2026.7.19) has too little of it: no ETag, no HEAD, DELETE and listing (501), and it writes over an
object that was to be created."""

from __future__ import annotations

import contextlib
import json
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

_Start = Callable[..., Any]
_SIGNED = "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Moto does not verify it."""


@contextlib.contextmanager
def gcs_server() -> Iterator[str]:
    """The address of an empty server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

    s3 = DomainDispatcherApplication(create_backend_app)

    def as_s3(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        """Google's client escapes dashes and slashes, which moto does not expect. A generation of 0 is that of an
        object which does not exist: https://cloud.google.com/storage/docs/xml-api/reference-headers"""
        for name in ("RAW_URI", "REQUEST_URI"):
            path, *query = environ[name].split("?", 1)
            environ[name] = "?".join([unquote(path), *query])
        environ["HTTP_AUTHORIZATION"] = _SIGNED
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", "") == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        found: Iterable[bytes] = s3(environ, start)
        return found

    server = make_server("127.0.0.1", 0, as_s3, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def new_google_bucket(endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket that is made for it, with credentials in the environment."""
    name = "g-" + name.lower().replace("_", "-")[-50:].strip("-")
    assert httpx.put(f"{endpoint}/{name}", trust_env=False).status_code == 200
    account = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps({**account, "gcs_base_url": endpoint}))
    return f"gs://{name}"
