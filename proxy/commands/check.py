"""`context-proxy check`: whether these settings would start, without starting.

Rule: mistakes are the caller's to print, one line each; here is what is right and still cannot work, and what holds.
"""

from __future__ import annotations

import sys

from proxy.config.settings import Settings
from proxy.preflight import leads_here

RIGHT, WRONG = 0, 2
"""The exit status; 2 as for every other command that reads wrong settings."""


def check(settings: Settings) -> int:
    """Say what the settings come to; the exit status."""
    server = settings.server
    if problem := leads_here(settings.upstream.base_url, server.host, server.port):
        print(problem, file=sys.stderr)
        return WRONG
    key = "a key of its own" if settings.upstream.api_key is not None else "the keys of its clients"
    mode = settings.mode if settings.enabled else "off"
    print(
        f"The settings are right: {server.host} port {server.port}, to {settings.upstream.base_url} with {key}, "
        f"mode {mode}, files in {settings.data_dir.absolute()}."
    )
    return RIGHT
