"""`context-proxy status`: what the running proxies of this user say about themselves.

Rule: a proxy is asked only after its port has proven to be its own; foreign text cannot control the terminal.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from proxy.commands.explain import number, plain
from proxy.config import Settings
from proxy.shell.operator import NONCE_HEADER, PROOF_HEADER, Announcement, announcements, is_proven

RUNS, RUNS_NOT = 0, 1
"""The exit status."""
ANSWER_SECONDS: Final = 10.0
"""Timeout of an answer: a proxy that starts needs a second, and one that asks its upstreams three."""
_MAX_BYTES: Final = 1024 * 1024


def ask(one: Announcement, *, full: bool = False, timeout_seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
    """The status of a proxy; None if whoever listens at its port does not prove to be it."""
    nonce = secrets.token_hex(16)
    host, _, port = one.root.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_seconds)
    headers = {NONCE_HEADER: nonce, PROOF_HEADER: one.proof("command", nonce)}
    with contextlib.closing(connection), contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        connection.request("GET", f"/-/status?full={str(full).lower()}", headers=headers)
        answer = connection.getresponse()
        body = answer.read(_MAX_BYTES)
        if (
            is_proven(one.token, "proxy", one.port, nonce, answer.headers.get(PROOF_HEADER, ""))
            and answer.status == 200
        ):
            found: dict[str, Any] = json.loads(body)
            return found
    return None


def status(settings: Settings, *, as_json: bool, console: Console | None = None) -> int:
    """Describe the running proxies of this user's data folder; the exit status."""
    found = [(one, described) for one in announcements(settings.data_dir) if (described := ask(one, full=True))]
    if as_json:
        print(json.dumps([{"url": one.root, **described} for one, described in found], indent=2))
    elif found:
        for one, described in found:
            _print(one, described, console or Console(highlight=False, soft_wrap=True, markup=False))
    else:
        print(_none(settings.data_dir), file=sys.stderr)
    return RUNS if found else RUNS_NOT


def _none(data_dir: Path) -> str:
    return f"no proxy of yours runs with the data folder {data_dir.absolute()}; --data-dir names another one"


def _print(one: Announcement, found: dict[str, Any], console: Console) -> None:
    served, process = found["served"], found["process"]
    rows = [
        ("version", f"{process['version']}, mode {process['mode']}"),
        ("process", f"{process['pid']}, {_workers(process['workers'])}, for {_duration(process['seconds'])}"),
        ("data folder", found["data_dir"]),
        ("tool output", found["artifacts"]),
        *(("upstream", address) for address in found["upstreams"]),
        *(("window", f"{number(w['window_tokens'])} tokens for {w['model']}, {w['source']}") for w in found["windows"]),
        ("served", in_words(served)),
        *(("health", one["words"]) for one in found["health"]),
        *(("problem", _problem(one)) for one in found["problems"]),
    ]
    console.print(f"{one.root}/", style="bold")
    for name, text in rows:
        console.print(f"  {name:<12}{plain(text)}")


def in_words(served: dict[str, int]) -> str:
    """Sums over requests in a line.

    >>> in_words({"requests": 1, "fitted": 1, "survived": 0, "tokens_saved": 12000})
    '1 request, 1 made to fit, 0 cured after a refusal, 12,000 tokens saved'
    """
    requests = "1 request" if served["requests"] == 1 else f"{number(served['requests'])} requests"
    fitted, cured, saved = (number(served[name]) for name in ("fitted", "survived", "tokens_saved"))
    return f"{requests}, {fitted} made to fit, {cured} cured after a refusal, {saved} tokens saved"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _duration(seconds: int) -> str:
    """
    >>> _duration(59), _duration(7300)
    ('59 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds} s"
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _problem(one: dict[str, Any]) -> str:
    status = f" ({one['status']})" if one["status"] else ""
    why = f": {one['problem']}" if "problem" in one else ""
    model = one.get("model") or "a request"
    return f"{one['ended']} {model} {one['outcome']}{status}{why}, request {one['request_id']}"
