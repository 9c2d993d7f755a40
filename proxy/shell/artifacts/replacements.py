"""What stands in place of artifacts in the latest requests, for those who may read the artifacts.

Rule: this is content, so it stays in this process's memory, is bounded in requests and in size, is never logged or
written anywhere, and is found only with the tenant of its request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from proxy.core.artifact import Artifact
from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.message import Carried, Content, Shown, Words
from proxy.shell.resources.bounded import BoundedMap

MAX_REQUESTS: Final = 200
MAX_BYTES: Final = 16 * 1024 * 1024
"""Counted as if no two requests shared a text; turns of one conversation share most."""
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Of one request; a larger one is not remembered, so that it does not push out all others."""
_ENTRY_BYTES: Final = 300
"""What a name and a text take besides the text itself."""


class _Request(NamedTuple):
    """One request's replacements."""

    texts: dict[str, str]
    """By the name of the artifact."""
    left_out: frozenset[str]
    """The artifacts of messages that are left out."""
    note: str
    """The text that carries the note about those."""


class Replacements:
    """Remembers the latest requests that were changed; one for each process."""

    def __init__(self) -> None:
        self._requests: BoundedMap[tuple[str, str], _Request] = BoundedMap(MAX_REQUESTS, MAX_BYTES)

    @property
    def held_bytes(self) -> int:
        """Its approximate memory."""
        return self._requests.held_bytes

    def add(self, request_id: str, tenant: str, edits: Iterable[Edit], artifacts: Sequence[Artifact]) -> None:
        """A request is sent with these edits, in place of what was sent for it before; `artifacts`: all that was taken
        out of it."""
        self._requests.pop((request_id, tenant))
        replaced: dict[str, Content] = {}
        note = ""
        for edit in edits:  # a later edit of the same place stands for an earlier one
            if edit.artifact is None:
                continue
            if edit.reason is Reason.OMISSION_NOTE:
                note = in_words(edit.becomes)
            else:
                replaced[edit.artifact.id] = edit.becomes
        left_out = frozenset([artifact.id for artifact in artifacts if artifact.id not in replaced])
        if not replaced and not left_out:
            return
        held_bytes = _ENTRY_BYTES * (1 + len(replaced) + len(left_out)) + _bytes_of(note)
        texts: dict[str, str] = {}
        for artifact_id, content in replaced.items():
            text = texts[artifact_id] = in_words(content)
            held_bytes += _bytes_of(text)
            if held_bytes > MAX_REQUEST_BYTES:  # each of a thousand images may stand in the words about all of them
                return
        if held_bytes <= MAX_REQUEST_BYTES:
            self._requests.put((request_id, tenant), _Request(texts, left_out, note), held_bytes)

    def find(self, request_id: str, tenant: str | None, artifact: str) -> str | None:
        """What stood in place of an artifact in a request; empty: nothing. None if it is not known. `tenant` None: of
        any tenant."""
        tenants = [tenant] if tenant is not None else [key[1] for key in self._requests if key[0] == request_id]
        for one in reversed(tenants):
            request = self._requests.get((request_id, one))
            if request is not None and artifact in request.texts:
                return request.texts[artifact]
            if request is not None and artifact in request.left_out:
                return request.note
        return None


def in_words(content: Content) -> str:
    """New content as text; what is no text is named.

    >>> in_words("beginning … end"), in_words(None)
    ('beginning … end', '')
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([_part_in_words(item) for item in content.items])


def _part_in_words(item: Carried | Words | Shown) -> str:
    match item:
        case Words():
            return item.text
        case Shown():
            return f"[{item.route}: {item.found.mime}]"
        case Carried():
            return "[a part that stays as it came]"


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)
