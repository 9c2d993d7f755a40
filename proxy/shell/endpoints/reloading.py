"""`POST /-/reload`: the settings are read again.

Rule: for the operator alone, as the guard says; the answer is what came of it, and no setting's value.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from proxy.config.settings import ServerSettings
from proxy.core.text import jsontext
from proxy.errors import KeyNeeded, ProxyError
from proxy.shell.endpoints.guard import Guard
from proxy.wire.openai_chat import error_body

Reload: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
"""Reads the settings again; what came of it. Raises SettingsRefused."""

RELOAD_PATH: Final = "/-/reload"
"""As Prometheus and its companions have it."""
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def add_reload_route(app: FastAPI, server: ServerSettings, reload: Reload) -> None:
    """Serve `/-/reload`."""
    guard = Guard(server.admin_key, server.host_names)

    async def answer(request: Request) -> Response:
        try:
            guard.check(request)
            found = {**await reload(), "workers": server.workers}
            return Response(jsontext.dump(found), media_type="application/json", headers=_HEADERS)
        except ProxyError as error:
            headers = {**_HEADERS, "x-request-id": f"req-{secrets.token_hex(8)}"}
            if isinstance(error, KeyNeeded):
                headers["www-authenticate"] = 'Basic realm="context-proxy", charset="UTF-8"'
            return Response(error_body(error), error.status, headers, "application/json")

    app.router.routes.append(Route(RELOAD_PATH, answer, methods=["POST"]))
