"""`context-proxy status`: what the running proxies of this user say about themselves.

Rule: a proxy is asked only after its port has proven to be its own.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
from typing import Any, Final

from proxy.commands.screen import complain, show
from proxy.config import Settings
from proxy.shell.operator import NONCE_HEADER, PROOF_HEADER, Announcement, announcements, is_proven, proof_of

RUNS, RUNS_NOT = 0, 1
"""The exit status."""
ANSWER_SECONDS: Final = 10.0
"""Timeout of an answer: a proxy that starts needs a second, and one that asks its upstreams three."""
_MAX_BYTES: Final = 1024 * 1024
_OF_PROBLEM: Final = ("ended", "model", "outcome", "status", "problem", "request_id")
"""Members of a request's record that are shown; `/decisions` has the others."""


def ask(one: Announcement, *, full: bool = False, timeout_seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
    """The status of a proxy; None if whoever listens at its port does not prove to be it."""
    nonce = secrets.token_hex(16)
    host, _, port = one.root.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_seconds)
    headers = {NONCE_HEADER: nonce, PROOF_HEADER: proof_of(one.token, "command", one.port, nonce)}
    with contextlib.closing(connection), contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        connection.request("GET", f"/-/status?full={str(full).lower()}", headers=headers)
        answer = connection.getresponse()
        body, proof = answer.read(_MAX_BYTES), answer.headers.get(PROOF_HEADER, "")
        if answer.status == 200 and is_proven(one.token, "proxy", one.port, nonce, proof):
            found: dict[str, Any] = json.loads(body)
            return found
    return None


def status(settings: Settings, *, as_json: bool) -> int:
    """Describe the running proxies of this user's data folder; the exit status."""
    asked = ((one, ask(one, full=True)) for one in announcements(settings.data_dir))
    found = [{"url": f"{one.root}/", **described} for one, described in asked if described is not None]
    if as_json:
        show(found, as_json=True)
    for one in () if as_json else found:
        problems = [{name: request.get(name) for name in _OF_PROBLEM} for request in one["problems"]]
        show(one | {"problems": problems}, as_json=False)
    if found or as_json:
        return RUNS if found else RUNS_NOT
    where = settings.data_dir.absolute()
    return complain(f"no proxy of yours runs with the data folder {where}; --data-dir names another one", RUNS_NOT)


def in_words(served: dict[str, int]) -> str:
    """Sums over requests in a line.

    >>> in_words({"requests": 1, "fitted": 1, "cured": 0, "tokens_saved": 12000})
    '1 request, 1 made to fit, 0 cured after a refusal, 12,000 tokens saved'
    """
    requests = "1 request" if served["requests"] == 1 else f"{served['requests']:,} requests"
    fitted, cured, saved = (f"{served[name]:,}" for name in ("fitted", "cured", "tokens_saved"))
    return f"{requests}, {fitted} made to fit, {cured} cured after a refusal, {saved} tokens saved"
