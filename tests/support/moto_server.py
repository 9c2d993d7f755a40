"""Moto's server of S3 as a process of its own, as one that runs tests would keep 43 MB of it; for Google's XML API as
well, which is made like S3's (https://cloud.google.com/storage/docs/interoperability): it differs in a header."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

_Start = Callable[..., Any]
_Application = Callable[[dict[str, Any], _Start], Iterable[bytes]]
_SIGNED = "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Moto does not verify it."""


@contextlib.contextmanager
def moto_server(of: str) -> Iterator[str]:
    """The address of an empty server; `of`: "s3" or "google"."""
    with subprocess.Popen(
        [sys.executable, __file__, of], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().decode().strip()
            assert address, "the server does not start"
            yield address
        finally:
            process.kill()


def _as_s3(s3: _Application) -> _Application:
    """Google's client escapes dashes and slashes, which moto does not expect. A generation of 0 is that of an object
    which does not exist: https://cloud.google.com/storage/docs/xml-api/reference-headers"""

    def application(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        for name in ("RAW_URI", "REQUEST_URI"):
            path, *query = environ[name].split("?", 1)
            environ[name] = "?".join([unquote(path), *query])
        environ["HTTP_AUTHORIZATION"] = _SIGNED
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", "") == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        return s3(environ, start)

    return application


def _serve(of: str) -> None:
    """Run until the parent has closed its input, or is gone."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    s3: _Application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, _as_s3(s3) if of == "google" else s3, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(sys.argv[1])
