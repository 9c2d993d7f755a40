"""Queries for artifacts: a page, a part, or a refusal that says what is wrong; never a defect, never more than a page.

A case is a query string, and on a second line, where there is one, the `Range` header.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import quote, quote_plus

from fastapi import FastAPI
from fuzz.mutations import ODD_TEXTS, damaged
from hypothesis import strategies as st

from proxy.core.artifact import Artifact
from proxy.core.text import PAGE_BYTES
from proxy.shell.artifacts import ArtifactReader, ArtifactStore, PrivateFolder, Replacements, Tenants
from proxy.shell.endpoints import ArtifactRights, Guard, create_api

_KEY: Final = (b"authorization", b"Bearer sk-fuzz")
_TENANTS: Final = Tenants(b"s" * 32)
_KEPT: Final = (
    Artifact(b"".join(b"line %d: value %d\n" % (n, n * 7_919 % 9_973) for n in range(8_000)), "sh"),
    Artifact(b"one\r\ntwo\n\n\xff\xfe\x00 three \xe5\xad", "sh"),
    Artifact(("字🙂" * 30_000).encode(), "sh"),
    Artifact(b"", "sh"),
    Artifact(b'{"a": [1, {"b/c": "x\\ny", "": 2.50}], "\\ud800": "\\ud800", "n": 1e999}', "", "json"),
    Artifact(b"[" * 3_000 + b"]" * 3_000, "", "json"),
    Artifact(b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "camera", "png"),
)
_HEADER_BYTES: Final = 3_000
"""Of the line above a page, and of marks for what is cut in it."""

_NUMBERS: Final = st.sampled_from(
    ["0", "1", "2", "50", "7999", "8001", "48000", "999999999999", "9" * 30, "-1", "", "٣"]
)
_LINES: Final = st.one_of(
    st.builds("{}-{}".format, _NUMBERS, _NUMBERS),
    st.builds("{}:{}-{}".format, _NUMBERS, _NUMBERS, _NUMBERS),
    st.builds("-{}".format, _NUMBERS),
    _NUMBERS,
)
_ATOMS: Final = (
    "line",
    "7",
    ".",
    "\\d",
    "\\w",
    "字",
    "[a-z]",
    "[^1]",
    "\\x{110000}",
    "\\pL",
    "^",
    "$",
    "\\b",
    "(?i)",
    "\\n",
    "\\C",
)
_PATTERNS: Final = st.recursive(
    st.sampled_from([*_ATOMS, "(?=x)", "\\1", "(?P<n>x)", "\x00", "\ud800", "[", "(", "\\", "*"]),
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
        st.builds("{}{}".format, inner, st.sampled_from(["*", "+", "?", "{3}", "{2,}", "{1000}", "+?", "**"])),
    ),
    max_leaves=8,
)
_STEPS: Final = st.sampled_from(["a", "0", "1", "b~1c", "", "~", "~2", "-", "00", "9" * 12, "\ud800", "n", "é"])
_POINTERS: Final = st.lists(_STEPS, max_size=5).map(lambda steps: "".join(f"/{step}" for step in steps))
_PARAMETERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "lines": _LINES,
        "grep": _PATTERNS,
        "context": _NUMBERS,
        "max": _NUMBERS,
        "json": st.one_of(_POINTERS, st.just("/0" * 499), st.just("/" * 1_001)),
        "stat": st.sampled_from(["", "1"]),
        "other": st.just("x"),
    },
)
_RANGES: Final = st.one_of(
    st.builds("bytes={}-{}".format, _NUMBERS, _NUMBERS),
    st.sampled_from(["bytes=0-1,3-4", "bytes= 1-2 ", "lines=1-2", "bytes", "bytes=-"]),
)


@st.composite
def _cases(draw: Any) -> bytes:
    parameters = draw(_PARAMETERS)
    if draw(st.integers(0, 5)) == 0 and parameters:
        parameters[draw(st.sampled_from(sorted(parameters)))] = draw(st.sampled_from(ODD_TEXTS))
    quoted = draw(st.sampled_from([quote, quote_plus, lambda text, **_: text]))
    pairs = [f"{name}={quoted(text, errors='surrogatepass')}" for name, text in parameters.items()]
    pairs += draw(st.sampled_from([[], [], [], ["grep=x"], ["stat"], ["%ff=1"], ["x=1"] * 21, ["=", "&"]]))
    query = "&".join(pairs).encode("utf-8", "surrogatepass")
    return query.replace(b"\n", b" ") + draw(st.one_of(st.just(""), _RANGES.map("\n{}".format))).encode()


CASES: Final = damaged(_cases())


@dataclass(frozen=True)
class _Heard:
    status: int
    headers: dict[bytes, bytes]
    body: bytes


def check(case: bytes) -> None:
    """Raises AssertionError for a broken rule; whatever else is raised is a defect, too."""
    query, _, byte_range = case.partition(b"\n")
    loop, route = _running()
    for artifact in _KEPT:
        heard = loop.run(_get(route, artifact.id, query, byte_range))
        assert heard.headers[b"content-length"] == str(len(heard.body)).encode()
        assert heard.status in (200, 206, 400, 416), heard
        if heard.status >= 400:
            assert json.loads(heard.body)["error"]["message"]
        elif heard.status == 206:
            found = re.fullmatch(rb"bytes (\d+)-(\d+)/(\d+)", heard.headers[b"content-range"])
            assert found is not None
            assert heard.body == artifact.content[int(found[1]) : int(found[2]) + 1]
        elif not query.strip(b"&"):  # asks for nothing in particular
            assert heard.body == artifact.content
        else:
            assert len(heard.body) <= PAGE_BYTES + _HEADER_BYTES


@cache
def _running() -> tuple[asyncio.Runner, FastAPI]:
    """The API over a store that keeps all this, until the process ends."""
    place = tempfile.TemporaryDirectory(prefix="fuzz-")
    folder = PrivateFolder(Path(place.name))
    runner, store = asyncio.Runner(), ArtifactStore(folder, retention_days=7, max_bytes=2**30)
    assert runner.run(store.keep(_KEPT, _TENANTS.tenant_of([_KEY]).hex())) == frozenset()
    runner.run(store.close())
    reader = ArtifactReader(folder, retention_days=7)
    for end in (place.cleanup, runner.close):
        atexit.register(end)
    rights = ArtifactRights(_TENANTS)
    upstream = SimpleNamespace(base_path=b"/v1")
    api = create_api()
    api.state.services = SimpleNamespace(
        routes=SimpleNamespace(default=SimpleNamespace(upstream=upstream), beside=lambda _: None),
        uses=1,
        let_go=lambda: None,
        guard=Guard(None, frozenset()),
        rights=rights,
        tenants=_TENANTS,
        reader=reader,
        replacements=Replacements(),
    )
    return runner, api


async def _get(api: FastAPI, name: str, query: bytes, byte_range: bytes) -> _Heard:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [_KEY, (b"host", b"x")] + ([(b"range", byte_range)] if byte_range else [])
    path = f"/artifacts/{name}"
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": headers}
    await api(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return _Heard(sent[0]["status"], dict(sent[0]["headers"]), body)
