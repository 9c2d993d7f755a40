"""`context-proxy check`: whether the proxy would start with these settings, without starting it.

Rule: the caller prints mistakes, one line each; this prints what is valid but cannot work, and a summary.
"""

from __future__ import annotations

import sys

from proxy.config.settings import Settings
from proxy.config.upstreams import UpstreamSettings
from proxy.preflight import leads_here
from proxy.shell.artifacts.access import OWNER_FILE

RIGHT, WRONG = 0, 2
"""The exit status; 2 as for every other command that reads invalid settings."""


def check(settings: Settings) -> int:
    """Print a summary of the settings; the exit status."""
    server = settings.server
    if problem := leads_here(settings.named_upstreams, server.host, server.port):
        print(problem, file=sys.stderr)
        return WRONG
    mode = settings.mode if settings.enabled else "off"
    print(
        f"Configuration is valid: {server.host} port {server.port}, to {_described(settings.upstream)}, "
        f"mode {mode}, files in {settings.data_dir.absolute()}."
    )
    for one in settings.upstreams:
        print(f"{one.requests} go to {_described(one)}.")
    if settings.state.url is not None and (settings.artifacts.url is None or settings.artifacts.url == "memory://"):
        secret = settings.data_dir.absolute() / OWNER_FILE
        print(
            f"state.url shares with replicas that have the same {secret} only: copy that file to all of them, or set "
            "artifacts.url, which holds it for them."
        )
    return RIGHT


def _described(one: UpstreamSettings) -> str:
    return f"{one.base_url} with {'the keys of its clients' if one.api_key is None else 'a key of its own'}"
