"""`docs/dependencies.md`: what each package of the lock is for.

Rule: names and versions come from requirements/run.lock; a package without a purpose here, or a purpose without a
package, is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tools.handbook.rooms import ROOT

HEAD: Final = """\
# Dependencies

Written by `make docs/dependencies.md` from `requirements/run.lock`: everything that a plain install brings. The extras
add `backports-zstd` and `brotli` (`compression`), `mcp`, `redis` and OpenTelemetry's SDK (`otel`).

| package | version | needed by | for |
|---|---|---|---|
"""
PURPOSES: Final[Mapping[str, tuple[str, str]]] = {
    "aiohappyeyeballs": ("aiohttp", "connecting over IPv4 and IPv6"),
    "aiohttp": ("the proxy", "requests to upstreams"),
    "aiosignal": ("aiohttp", "its callbacks"),
    "annotated-doc": ("fastapi", "descriptions of parameters"),
    "annotated-types": ("pydantic", "limits of values"),
    "anyio": ("httpx, starlette", "asynchronous primitives"),
    "attrs": ("aiohttp", "its classes"),
    "certifi": ("httpx", "certificates of authorities"),
    "charset-normalizer": ("requests", "only with requests"),
    "click": ("uvicorn", "its command line, unused"),
    "fastapi": ("the proxy", "the application, its OpenAPI"),
    "frozenlist": ("aiohttp", "its lists"),
    "google-re2": ("the proxy", "searches by patterns from models, in linear time"),
    "h11": ("httpcore, uvicorn", "HTTP/1.1 for httpx"),
    "httpcore": ("httpx", "connections"),
    "httptools": ("the proxy", "parsing requests of clients"),
    "httpx": ("the proxy", "requests off the hot path: images, doctor, demo"),
    "idna": ("httpx, yarl", "international host names"),
    "msgspec": ("the proxy", "JSON, and the structures of what is stored"),
    "multidict": ("aiohttp, yarl", "headers"),
    "obstore": ("the proxy", "artifacts in a bucket"),
    "opentelemetry-api": ("fastapi", "tracing, unused without the extra `otel`"),
    "prometheus-client": ("the proxy", "metrics"),
    "propcache": ("aiohttp, yarl", "cached properties"),
    "pydantic": ("the proxy", "settings, schemas of the API"),
    "pydantic-core": ("pydantic", "its compiled part"),
    "pydantic-settings": ("the proxy", "settings from variables"),
    "python-dotenv": ("pydantic-settings", "`.env` files, unused"),
    "pyyaml": ("the proxy", "the settings file"),
    "regex": ("tiktoken", "splitting texts"),
    "requests": ("tiktoken", "downloads of vocabularies, unused: the wheel carries them, but tiktoken declares it"),
    "starlette": ("fastapi", "routing, requests, responses"),
    "structlog": ("the proxy", "the log"),
    "tiktoken": ("the proxy", "counting tokens of OpenAI's models"),
    "typing-extensions": ("fastapi, pydantic and others", "newer types"),
    "typing-inspection": ("pydantic", "reading types"),
    "urllib3": ("requests", "only with requests"),
    "uvicorn": ("the proxy", "the HTTP server"),
    "uvloop": ("the proxy", "the event loop"),
    "yarl": ("aiohttp", "URLs"),
}


def render() -> str:
    """The page. Raises LookupError if lock and purposes differ."""
    lock = (ROOT / "requirements" / "run.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9.-]+)\S*==(\S+)", lock, re.MULTILINE))
    if different := locked.keys() ^ PURPOSES.keys():
        raise LookupError(f"tools/handbook/dependencies.py and requirements/run.lock differ: {sorted(different)}")
    rows = [f"| {name} | {version} | {' | '.join(PURPOSES[name])} |" for name, version in sorted(locked.items())]
    return HEAD + "\n".join(rows) + "\n"
