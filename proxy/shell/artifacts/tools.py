"""What the tools `read_artifact` and `search_artifacts` return, whoever calls them: a model through the proxy, or a
client of MCP.

Rule: whatever goes wrong, the text says what is allowed; nothing is shown but what these tenants may read. A search of
many artifacts is bounded in time and in the number of artifacts, says what it has not searched, and keeps none of them
longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from proxy.core.artifact import beginning_of
from proxy.core.artifact_reading.pages import Query, listing_header, quoted, search_header
from proxy.core.notices.catalogue import Language
from proxy.core.retrieval_tool.hidden_calls import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.tool import ArtifactSearch, Wanted, failed, not_searched, unnamed
from proxy.core.text.lines import utf8_length
from proxy.errors import ArtifactNotFound, BadArtifactQuery, ProxyError, RangeOutside
from proxy.shell.artifacts.by_hash import RECORD_TOOL
from proxy.shell.artifacts.reader import SEARCH_SECONDS, ArtifactReader, Stored

MAX_SHOWN: Final = 50
"""Artifacts in one list."""
MAX_SEARCHED: Final = 500
"""Artifacts that one search reads, if the time allows."""
AT_ONCE: Final = 4
"""Artifacts that are read at the same time: as many as the reader has threads."""
MIN_HITS_BYTES: Final = 500
"""Room left for the hits of one artifact that makes it worth searching another."""
_OURS: Final = (beginning_of(RETRIEVAL_TOOL), beginning_of(RECORD_TOOL))
"""Beginnings of the names of records that the proxy keeps for itself, as JSON."""

Tenants = Sequence[str | None]
"""Whose artifacts may be read, tried in this order; None: anybody's."""


class ToolText(NamedTuple):
    """The result of a call."""

    text: str
    is_failure: bool = False


class ArtifactTools:
    """Answers calls."""

    def __init__(self, reader: ArtifactReader, language: Language) -> None:
        self._reader = reader
        self._language = language

    async def read(self, wanted: Wanted | None, tenants: Tenants, max_bytes: int) -> ToolText:
        """The result of `read_artifact`, of about `max_bytes`; `wanted` None: the call named no artifact."""
        if wanted is None:
            return ToolText(unnamed(self._language), is_failure=True)
        try:
            query = Query.parse(wanted.asked) or Query()
            stored = await self._found(wanted.artifact, tenants, is_use=True)
            page = await self._reader.page(stored, query, max_bytes)
        except ProxyError as error:
            return ToolText(failed(wanted.artifact, error, self._language), is_failure=True)
        return ToolText(quoted(page.decode("utf-8", "replace")))

    async def search(self, arguments: Mapping[str, Any], tenants: Tenants, max_bytes: int) -> ToolText:
        """The result of `search_artifacts`, of about `max_bytes`."""
        try:
            asked = ArtifactSearch.parse(arguments)
            newest = await self._reader.newest(tenants, asked.beginning)
            names = [name for name in newest if not (name.startswith(_OURS) and name.endswith(".json"))]
            if asked.search is None:
                return ToolText(await self._listed(names, tenants))
            return ToolText(await self._searched(names, Query(search=asked.search), tenants, max_bytes))
        except ProxyError as error:
            return ToolText(not_searched(error, self._language), is_failure=True)

    async def _found(self, name: str, tenants: Tenants, *, is_use: bool = False) -> Stored:
        for tenant in tenants[:-1]:
            try:
                return await self._reader.find(name, tenant, is_use=is_use)
            except ArtifactNotFound:
                continue
        return await self._reader.find(name, tenants[-1], is_use=is_use)

    async def _listed(self, names: Sequence[str], tenants: Tenants) -> str:
        found = await asyncio.gather(*(self._line(name, tenants) for name in names[:MAX_SHOWN]))
        lines = [line for line in found if line]
        return listing_header(len(lines), len(names), self._language) + "".join(lines)

    async def _line(self, name: str, tenants: Tenants) -> str:
        try:
            known = (await self._found(name, tenants)).metadata
        except ArtifactNotFound:
            return ""  # removed a moment ago
        return f"{name}  {known.size:,} bytes  {known.media_type}  {known.created}\n"

    async def _searched(self, names: Sequence[str], query: Query, tenants: Tenants, max_bytes: int) -> str:
        ends, room, searched = monotonic() + SEARCH_SECONDS, max_bytes, 0
        pages: list[str] = []
        for at in range(0, min(len(names), MAX_SEARCHED), AT_ONCE):
            if room < MIN_HITS_BYTES or monotonic() > ends:
                break
            some = names[at : at + AT_ONCE]
            share = max(MIN_HITS_BYTES, room // len(some))
            for page in await asyncio.gather(*(self._hits(name, query, tenants, share) for name in some)):
                searched += 1
                if page.partition("\n")[2]:
                    pages.append(page if page.endswith("\n") else page + "\n")
                    room -= utf8_length(page)
        return search_header(len(pages), searched, len(names), self._language) + quoted("".join(pages))

    async def _hits(self, name: str, query: Query, tenants: Tenants, max_bytes: int) -> str:
        """A page of hits; of an artifact that has no lines, or is gone, nothing."""
        try:
            page = await self._reader.page(await self._found(name, tenants), query, max_bytes)
        except (ArtifactNotFound, BadArtifactQuery, RangeOutside):
            return ""
        return page.decode("utf-8", "replace")
