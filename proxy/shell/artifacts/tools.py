"""Results for readers of artifacts: models, clients of MCP, gateways, the dashboard. They find what they read by name,
by search or by hash, and the dashboard finds the replacement text of each artifact of recent requests.

Rule: a tenant reads nothing but its own artifacts, records and replacement texts. Replacement texts stay in memory,
bounded in requests and bytes, and are never logged.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from proxy.core.artifact import Artifact, beginning_of
from proxy.core.artifact_reading import Query, listing_header
from proxy.core.conversation import Carried, Content, Edit, Reason, Shown, Words
from proxy.core.notices import Language, quoted
from proxy.core.retrieval_tool import ArtifactSearch, Wanted, failed, notice
from proxy.errors import ArtifactNotFound, ProxyError
from proxy.shell.artifacts.reader import MESSAGES, ArtifactReader, Stored
from proxy.shell.artifacts.store import ArtifactStore
from proxy.shell.resources import BoundedMap

RECORD_TOOL: Final = "retrieve"
"""The tool in the names of records."""


class Record(msgspec.Struct, frozen=True):
    """Where an artifact is, and what it was taken from."""

    artifact: str
    """Its name."""
    tokens: int
    """Size of the message that contained it, in the model's tokens."""
    lines: tuple[int, int]
    """Line counts of that message, before and after compression."""


class ArtifactsByHash:
    """Stores artifacts so that they can be found by hash, and finds them."""

    def __init__(self, store: ArtifactStore, reader: ArtifactReader) -> None:
        self._store = store
        self._reader = reader

    async def keep(self, taken: Sequence[tuple[Artifact, Record]], tenant: str) -> frozenset[str]:
        """Make sure that these can be retrieved. Returns the names of the artifacts that cannot."""
        records = {artifact.id: _kept_as(artifact.hash, tenant, record) for artifact, record in taken}
        failed = await self._store.keep([*(artifact for artifact, _ in taken), *records.values()], tenant)
        return frozenset(name for name, record in records.items() if name in failed or record.id in failed)

    async def find(self, digest: str, tenant: str) -> tuple[Record, Stored]:
        """The tenant's record and artifact under a hash. Raises ArtifactError."""
        noted = await self._reader.find(_kept_as(digest, tenant).id, tenant)
        try:
            record = msgspec.json.decode(await self._reader.piece(noted, 0, noted.size), type=Record)
        except msgspec.DecodeError:
            raise ArtifactNotFound("nothing is kept under this hash") from None
        return record, await self._reader.find(record.artifact, tenant)


def _kept_as(digest: str, tenant: str, record: Record | None = None) -> Artifact:
    content = b"" if record is None else msgspec.json.encode(record)
    return Artifact(content, RECORD_TOOL, "json", named_by=f"{tenant} {digest}")


MAX_SHOWN: Final = 50
"""Artifacts in one list."""
_OURS: Final = beginning_of(RECORD_TOOL)
"""The beginning of the names of records that the proxy keeps for itself, as JSON."""

TenantNames = Sequence[str | None]
"""Whose artifacts may be read, tried in this order; None: all tenants'."""


class ToolText(NamedTuple):
    """The result of a call."""

    text: str
    is_failure: bool = False


class ArtifactTools:
    """Answers calls."""

    def __init__(self, reader: ArtifactReader, language: Language) -> None:
        self._reader = reader
        self._language = language

    async def read(
        self, wanted: Wanted | None, tenants: TenantNames, max_bytes: int, lost: Sequence[str] = (), total: int = 0
    ) -> ToolText:
        """The result of `read_artifact`, of about `max_bytes`; `wanted` None: the call named no artifact. `lost`: the
        artifacts of the conversation, the newest first; `total`: the number of its messages."""
        if wanted is None or not (wanted.artifact or lost):
            return ToolText(notice("unnamed", self._language), is_failure=True)
        name, text = wanted.artifact, ""
        try:
            query = Query.parse(wanted.parameters) or Query()
            is_search = query.search is not None and query.pointer is None
            if name and not (is_search and name.startswith(MESSAGES)):
                page = await self._reader.page(await self._reader.find(name, *tenants), query, max_bytes)
                text = quoted(page.decode("utf-8", "replace"), {name})
            if is_search and not text.partition("\n")[2]:
                names = lost or [name]
                if name.startswith(MESSAGES):
                    names = lost[lost.index(name) :] if name in lost else [name]
                text = await self._searched(names, tenants, query, max_bytes, total)
        except ProxyError as error:
            return ToolText(failed(name, error, self._language), is_failure=True)
        return ToolText(text)

    async def search(self, arguments: Mapping[str, Any], tenants: TenantNames, max_bytes: int) -> ToolText:
        """The result of `search_artifacts`, of about `max_bytes`."""
        try:
            wanted = ArtifactSearch.parse(arguments)
            newest = await self._reader.newest(tenants, wanted.beginning)
            names = [name for name in newest if not (name.startswith(_OURS) and name.endswith(".json"))]
            if wanted.query is None:
                return ToolText(await self._listed(names, tenants))
            return ToolText(await self._searched(names, tenants, wanted.query, max_bytes))
        except ProxyError as error:
            return ToolText(failed("", error, self._language), is_failure=True)

    async def _searched(
        self, names: Sequence[str], tenants: TenantNames, query: Query, max_bytes: int, total: int = 0
    ) -> str:
        header, page = await self._reader.search(names, tenants, query, max_bytes, total)
        return header + quoted(page)

    async def _listed(self, names: Sequence[str], tenants: TenantNames) -> str:
        found = await asyncio.gather(*(self._line(name, tenants) for name in names[:MAX_SHOWN]))
        lines = [line for line in found if line]
        return listing_header(len(lines), len(names), self._language) + "".join(lines)

    async def _line(self, name: str, tenants: TenantNames) -> str:
        try:
            known = (await self._reader.find(name, *tenants, is_use=False)).metadata
        except ArtifactNotFound:
            return ""  # removed a moment ago
        return f"{name}  {known.size:,} bytes  {known.media_type}  {known.created}\n"


MAX_REQUESTS: Final = 200
MAX_BYTES: Final = 16 * 1024 * 1024
"""Counted as if no two requests shared a text; turns of one conversation share most."""
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Limit for one request; a larger one is not remembered, as it would evict all others."""
_ENTRY_BYTES: Final = 300
"""Memory of an entry besides the text itself."""


class Replacements:
    """Remembers the latest requests that were changed; one for each process."""

    def __init__(self) -> None:
        self._requests: BoundedMap[tuple[str, str], dict[str, str]] = BoundedMap(MAX_REQUESTS, MAX_BYTES)
        """The text in place of each artifact, by id of the request and tenant; that of messages is the note."""

    def add(self, request_id: str, tenant: str, edits: Iterable[Edit], artifacts: Sequence[Artifact]) -> None:
        """A request is sent with these edits, in place of what was sent for it before; `artifacts`: all that was taken
        out of it."""
        self._requests.pop((request_id, tenant))
        replaced: dict[str, Content] = {}
        note = ""
        for edit in edits:  # a later edit of the same place supersedes an earlier one
            if edit.artifact is None:
                continue
            if edit.reason is Reason.OMISSION_NOTE:
                note = in_words(edit.becomes)
            else:
                replaced[edit.artifact.id] = edit.becomes
        texts = dict.fromkeys([artifact.id for artifact in artifacts], note)
        held_bytes = _ENTRY_BYTES * (1 + len(texts)) + sys.getsizeof(note)
        for artifact_id, content in replaced.items():
            text = texts[artifact_id] = in_words(content)
            held_bytes += sys.getsizeof(text)
            if held_bytes > MAX_REQUEST_BYTES:  # the words about a thousand images may name each of them
                return
        if texts and held_bytes <= MAX_REQUEST_BYTES:
            self._requests.put((request_id, tenant), texts, held_bytes)

    def find(self, request_id: str, tenant: str | None, artifact: str) -> str | None:
        """The replacement text of an artifact in a request; empty if there was none, None if it is not known.
        `tenant=None`: of any tenant."""
        tenants = [tenant] if tenant is not None else [key[1] for key in self._requests if key[0] == request_id]
        found = (self._requests.get((request_id, one)) or {} for one in reversed(tenants))
        return next((texts[artifact] for texts in found if artifact in texts), None)


def in_words(content: Content) -> str:
    """New content as text; what is no text is named.

    >>> in_words("beginning … end"), in_words(None)
    ('beginning … end', '')
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([_part_in_words(item) for item in content.items])


def _part_in_words(item: Carried | Words | Shown) -> str:
    if isinstance(item, Shown):
        return f"[{item.route}: {item.found.mime}]"
    return item.text if isinstance(item, Words) else "[a part that stays as it came]"
