"""`context-proxy artifacts ls|show|rm`: the content of the store, of all tenants, for the operator; `context-proxy
mcp`: artifacts for an agent on this machine, by the Model Context Protocol.

Rule: the output is bounded, and no tool output can control a terminal; `--whole` gives the content byte for byte. Over
MCP an agent gets what the client's keys may read, found where the client's SDK looks for them, and what came without a
key; standard output then belongs to the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Final

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
    artifact_of,
    create_folder,
    create_tenants,
    is_artifact,
    reason_of,
    remove_all,
)
from proxy.shell.resources import configure_logging

DONE: Final = 0
NOT_DONE: Final = 1
WRONG_QUERY: Final = 2
_KEPT_SIGNS: Final = frozenset("\n\t")


def artifacts(settings: Settings, options: argparse.Namespace) -> int:
    """Do what the command line's `options` ask for; the exit status."""
    folder = create_folder(settings)
    if options.do == "ls":
        return list_artifacts(folder, options.max, as_json=options.json)
    if options.do == "rm":
        return remove_artifacts(folder, options.names)
    parameters = {
        name: given for name in ("lines", "grep", "context", "json") if (given := getattr(options, name)) is not None
    }
    try:
        query = Query.parse({"stat": ""} if options.stat else parameters or {"lines": "1-"})
    except BadArtifactQuery as error:
        print(error.message, file=sys.stderr)
        return WRONG_QUERY
    days = settings.artifacts.retention_days
    return show_artifact(folder, days, options.name, None if options.whole else query)


def list_artifacts(folder: ArtifactFolder, most: int, *, as_json: bool) -> int:
    """Print the artifacts that were used last; the exit status."""
    try:
        is_there = folder.is_used()
        found = sorted(_found(folder), key=lambda one: -one["used"])
    except TROUBLE as error:
        return _complain(f"{folder.address} cannot be read: {reason_of(error)}")
    if not is_there and not as_json:
        print(f"There is no store in {folder.address}: nothing was kept there yet. --data-dir names another folder.")
        return DONE
    shown = [{**one, "used": _moment(one["used"])} for one in found[:most]]
    if as_json:
        print(json.dumps({"folder": folder.address, "total": len(found), "artifacts": shown}, indent=2))
        return DONE
    for one in shown:
        print(f"{one['used']}  {one['bytes']:>13,}  {one['id']}")
    total_bytes = sum(one["bytes"] for one in found)
    print(f"{len(shown):,} of {len(found):,} artifacts, {total_bytes:,} bytes in all, in {folder.address}")
    return DONE


def show_artifact(folder: ArtifactFolder, retention_days: float, name: str, query: Query | None) -> int:
    """Print a page of an artifact, or the whole of it if `query` is None; the exit status."""

    async def shown() -> None:
        reader = ArtifactReader(folder, retention_days=retention_days)
        try:
            stored = await reader.find(name, None)
            if query is None:
                async for piece in reader.pieces(stored, 0, stored.size):
                    sys.stdout.buffer.write(piece)
            else:
                page = await reader.page(stored, query)
                sys.stdout.buffer.write(_harmless(page) if sys.stdout.isatty() else page)
        finally:
            reader.close()
        sys.stdout.buffer.flush()

    try:
        asyncio.run(shown())
    except ProxyError as error:
        return _complain(error.message)
    return DONE


def remove_artifacts(folder: ArtifactFolder, names: Sequence[str]) -> int:
    """Remove artifacts and their metadata; the exit status."""
    missing = 0
    for name in names:
        try:
            removed = _removed(folder, name)
        except TROUBLE as error:
            return _complain(f"{folder.address} cannot be changed: {reason_of(error)}")
        if not removed:
            missing = _complain(f"there is no artifact {name!a}")
    return NOT_DONE if missing else DONE


def serve_mcp(settings: Settings) -> int:
    """Answer one client until it is gone; the exit status."""
    if find_spec("mcp") is None:
        return _complain(f"this command {missing_extra('mcp')}")
    from proxy.shell.endpoints.mcp_server import serve_stdio  # noqa: PLC0415 - needs an extra

    folder = create_folder(settings)
    if isinstance(folder, PrivateFolder) and not settings.data_dir.is_dir():
        return _complain(f"{settings.data_dir.absolute()} is not there: --data-dir names the folder of a proxy")
    configure_logging(settings.log, sys.stderr)
    tenants = create_tenants(settings, folder)
    if tenants.problem is not None:
        return _complain(f"the secret of tenants in {folder.address} cannot be read: {tenants.problem}")
    mine: TenantNames = tuple(tenants.tenant_of(one).hex() for one in ([], *([one] for one in client_keys(os.environ))))
    if settings.artifacts.open_on_loopback:
        mine = (None,)
    reader = ArtifactReader(folder, retention_days=settings.artifacts.retention_days, language=settings.language)
    try:
        asyncio.run(serve_stdio(ArtifactTools(reader, settings.language), mine))
    finally:
        reader.close()
    return DONE


def _found(folder: ArtifactFolder) -> Iterator[dict[str, Any]]:
    if not folder.is_used():
        return
    contents: dict[str, int] = {}
    used: dict[str, float] = {}
    for one in folder.listed():
        belongs = artifact_of(one.key)
        if belongs is not None:
            name, is_content = belongs
            used[name] = max(one.used, used.get(name, 0.0))
            if is_content:
                contents[name] = one.size
    for name, size in contents.items():
        yield {"id": name, "bytes": size, "used": used[name]}


def _removed(folder: ArtifactFolder, name: str) -> bool:
    """Remove the content first: after a crash, the rest is still found by its metadata."""
    if not is_artifact(name) or not folder.is_used():
        return False
    return remove_all(folder, (name, *[one.key for one in folder.listed(f"{META}/{name}.")]))


def _moment(unix_seconds: float) -> str:
    return datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC).isoformat(sep=" ", timespec="seconds")


def _harmless(page: bytes) -> bytes:
    """Text for a terminal: nothing that moves its cursor or changes the direction of writing."""
    text = page.decode("utf-8", "replace")
    return "".join(
        sign if sign.isprintable() or sign in _KEPT_SIGNS else "\N{REPLACEMENT CHARACTER}" for sign in text
    ).encode()


def _complain(problem: str) -> int:
    print(problem, file=sys.stderr)
    return NOT_DONE
