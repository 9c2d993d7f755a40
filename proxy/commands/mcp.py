"""`context-proxy mcp`: an agent on this machine reads and searches artifacts by the Model Context Protocol.

Rule: it shows what the client's keys may read, and what came without a key; keys are found where the client's SDK looks
for them. Standard output belongs to the protocol.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec

from proxy.config.settings import Settings
from proxy.config.types import client_keys
from proxy.preflight import create_folder, create_tenants
from proxy.shell.artifacts.bucket import Bucket
from proxy.shell.artifacts.reader import ArtifactReader
from proxy.shell.artifacts.tools import ArtifactTools, Tenants
from proxy.shell.resources.logs import configure_logging

DONE, NOT_DONE = 0, 1
"""The exit status."""


def serve_mcp(settings: Settings) -> int:
    """Answer one client until it is gone; the exit status."""
    if find_spec("mcp") is None:
        return _complain("this command needs a package that is not installed: pip install 'context-proxy[mcp]'")
    from proxy.shell.endpoints.mcp_server import serve_stdio  # noqa: PLC0415 - needs an extra

    folder = create_folder(settings)
    if not isinstance(folder, Bucket) and not settings.data_dir.is_dir():
        return _complain(f"{settings.data_dir.absolute()} is not there: --data-dir names the folder of a proxy")
    configure_logging(settings.log, sys.stderr)
    tenants = create_tenants(settings, folder)
    if tenants.problem is not None:
        return _complain(f"the secret of tenants in {folder.address} cannot be read: {tenants.problem}")
    mine: Tenants = tuple(tenants.tenant_of(one).hex() for one in ([], *([one] for one in client_keys(os.environ))))
    if settings.artifacts.open_on_loopback:
        mine = (None,)
    reader = ArtifactReader(folder, retention_days=settings.artifacts.retention_days, language=settings.language)
    try:
        asyncio.run(serve_stdio(ArtifactTools(reader, settings.language), mine))
    finally:
        reader.close()
    return DONE


def _complain(problem: str) -> int:
    print(problem, file=sys.stderr)
    return NOT_DONE
