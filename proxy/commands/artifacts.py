"""`context-proxy artifacts`, the content of the store for the operator, beside `context-proxy mcp`, which serves it to
an agent.

Rule: the output is bounded, and no tool output can control a terminal; `--whole` gives the content byte for byte. Over
MCP an agent gets what the client's keys may read, found where the client's SDK looks for them, and what came without a
key; standard output then belongs to the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import re
import sys
from importlib.util import find_spec
from typing import Any, Final

from proxy.commands.screen import complain, plain, show
from proxy.config import Settings, client_keys, missing_extra
from proxy.core.artifact_reading import Query
from proxy.errors import BadArtifactQuery, ProxyError
from proxy.shell.artifacts import (
    META,
    TROUBLE,
    ArtifactFolder,
    ArtifactReader,
    ArtifactTools,
    PrivateFolder,
    TenantNames,
    artifacts_in,
    create_folder,
    create_tenants,
    is_artifact,
    reason_of,
    remove_all,
    with_secret,
)
from proxy.shell.resources import configure_logging

WRONG_QUERY: Final = 2


def artifacts(settings: Settings, options: argparse.Namespace) -> int:
    """Do what the command line's `options` ask for; the exit status."""
    folder = create_folder(settings)
    try:
        missing = [name for name in options.names if not _removed(folder, name)] if options.do == "rm" else []
        found = _found(folder) if options.do == "ls" else []
    except TROUBLE as error:
        return complain(f"{folder.address} cannot be used: {reason_of(error)}")
    if options.do == "rm":
        return max([0, *(complain(f"there is no artifact {name!a}") for name in missing)])
    if options.do == "ls":
        listed = [{**one, "used": _moment(one["used"])} for one in found[: options.max]]
        total = {"folder": folder.address, "total": len(found), "bytes": sum(one["bytes"] for one in found)}
        show({**total, "artifacts": listed}, as_json=options.json)
        return 0
    parameters = {
        name: given for name in ("lines", "grep", "context", "json") if (given := getattr(options, name)) is not None
    }
    try:
        query = Query.parse({"stat": ""} if options.stat else parameters or {"lines": "1-"})
        reader = ArtifactReader(folder, retention_days=settings.artifacts.retention_days)
        asyncio.run(_print_page(reader, options.name, None if options.whole else query))
    except ProxyError as error:
        return complain(error.message, WRONG_QUERY if isinstance(error, BadArtifactQuery) else 1)
    return 0


async def _print_page(reader: ArtifactReader, name: str, query: Query | None) -> None:
    """Print a page of an artifact, or the whole of it if `query` is None. Raises ProxyError."""
    stored = await reader.find(name, None)
    if query is not None:
        page = await reader.page(stored, query)
        sys.stdout.buffer.write(_harmless(page) if sys.stdout.isatty() else page)
    else:
        async for piece in reader.pieces(stored, 0, stored.size):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def serve_mcp(settings: Settings) -> int:
    """Answer one client until it is gone; the exit status."""
    if find_spec("mcp") is None:
        return complain(f"this command {missing_extra('mcp')}")
    from proxy.shell.endpoints.mcp_server import serve_stdio  # noqa: PLC0415 - needs an extra

    folder = create_folder(settings)
    if isinstance(folder, PrivateFolder) and not settings.data_dir.is_dir():
        return complain(f"{settings.data_dir.absolute()} is not there: --data-dir names the folder of a proxy")
    configure_logging(settings.log, sys.stderr)
    tenants = create_tenants(with_secret(settings))
    mine: TenantNames = tuple(tenants.tenant_of(one).hex() for one in ([], *([one] for one in client_keys(os.environ))))
    if settings.artifacts.open_on_loopback:
        mine = (None,)
    reader = ArtifactReader(folder, retention_days=settings.artifacts.retention_days, language=settings.language)
    asyncio.run(serve_stdio(ArtifactTools(reader, settings.language), mine))
    return 0


def _found(folder: ArtifactFolder) -> list[dict[str, Any]]:
    """All artifacts, the last used first."""
    found = sorted(artifacts_in(folder.listed()).items(), key=lambda one: -one[1].used) if folder.is_used() else []
    return [{"id": name, "bytes": one.size, "used": one.used} for name, one in found if one.size is not None]


def _removed(folder: ArtifactFolder, name: str) -> bool:
    """Remove the content first: after a crash, the rest is still found by its metadata."""
    if not is_artifact(name) or not folder.is_used():
        return False
    return remove_all(folder, (name, *[one.key for one in folder.listed(f"{META}/{name}.")]))


def _moment(unix_seconds: float) -> str:
    return datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC).isoformat(sep=" ", timespec="seconds")


def _harmless(page: bytes) -> bytes:
    """Text for a terminal: nothing that moves its cursor or changes the direction of writing."""
    parts = re.split(r"([\n\t])", page.decode("utf-8", "replace"))
    return "".join(part if part in ("\n", "\t") else plain(part) for part in parts).encode()
