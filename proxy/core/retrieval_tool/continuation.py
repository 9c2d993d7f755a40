"""What a request needs that continues, by its name, from a response that its upstream keeps: the results of calls that
the client never saw, and the name under which the upstream has the whole of it.

Rule: an upstream waits for a result of each call that it keeps, so every response in which such calls have none leaves
a record. A response of several rounds ends under another name than it began with; clients continue from either.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.artifact import Artifact
from proxy.core.retrieval_tool.assistant_message import RETRIEVAL_TOOL
from proxy.core.retrieval_tool.hidden_calls import beginning, mark_of
from proxy.core.text import jsontext
from proxy.core.text.discreet import Discreet


class _Record(msgspec.Struct, frozen=True):
    """A record in the store."""

    visible: str
    """The mark of the name that the client knows."""
    name: str
    results: list[msgspec.Raw]
    """Each as its wire wrote it; a JSON string if that is not JSON."""


class Continuation(Discreet, frozen=True):
    """How to continue from one response."""

    mark: str
    """Of the name that the client knows."""
    name: str
    """The response to continue from."""
    results: tuple[bytes, ...]
    """What answers its hidden calls; these messages come before those of the request."""

    @classmethod
    def of(cls, tenant: str, told: str, name: str, results: Sequence[bytes]) -> Continuation:
        """What to remember of a response that the client knows as `told`."""
        return cls(mark_of_name(tenant, told), name, tuple(results))

    @classmethod
    def read(cls, content: bytes, mark: str) -> Continuation | None:
        """The record under a mark; None if the content is something else."""
        try:
            record = msgspec.json.decode(content, type=_Record)
            results = tuple(map(jsontext.taken_out, record.results))
        except (msgspec.DecodeError, UnicodeError, jsontext.NotJson):
            return None
        return cls(mark, record.name, results) if record.visible == mark else None

    @property
    def held_bytes(self) -> int:
        """What it takes in memory."""
        return len(self.name) + sum(map(len, self.results))

    def artifact(self) -> Artifact:
        """How it is kept: among the artifacts of its owner, under the mark."""
        members = {"visible": jsontext.dump(self.mark), "name": jsontext.dump(self.name)}
        results = jsontext.join_array([*map(jsontext.embedded, self.results)])
        content = jsontext.join_object(members | {"results": results})
        return Artifact(content, RETRIEVAL_TOOL, "json", named_by=self.mark)


def mark_of_name(tenant: str, name: str) -> str:
    """What distinguishes a tenant's response from all others, and from all calls."""
    return mark_of(beginning(tenant), name)
