"""Whose artifacts a request may read: the same rule for `/artifacts` and for `/mcp`.

Rule: content that arrived with a key is served for that key only, unless the settings open all of it to clients on this
machine.
"""

from __future__ import annotations

from starlette.types import Scope

from proxy.errors import NotFromHere
from proxy.shell.artifacts.tenants import Tenants
from proxy.shell.endpoints.guard import Guard


class ArtifactRights:
    """Looks at requests."""

    def __init__(self, tenants: Tenants, *, open_on_loopback: bool, host_names: frozenset[str]) -> None:
        self._tenants = tenants
        self._open_on_loopback = open_on_loopback
        self._guard = Guard(None, host_names)

    def tenant_of(self, scope: Scope) -> str | None:
        """The tenant whose artifacts it may read; None: anybody's."""
        if self._open_on_loopback and self._is_local(scope):
            return None
        return self._tenants.tenant_of(scope["headers"]).hex()

    def needs_key(self, scope: Scope) -> bool:
        """Whether a key would open what this request may not read."""
        return self._tenants.needs_key(scope["headers"])

    def _is_local(self, scope: Scope) -> bool:
        try:
            self._guard.check(scope)
        except NotFromHere:
            return False
        return True
