"""The type of a content: by its bytes, then by its declared type, then by its name, otherwise `other`.

Rule: a claim (a declared type, or a file extension) can only refine the finding: which text, which archive. It never
turns a text into an image.
"""

from __future__ import annotations

from typing import Final

from proxy.core.content_types.archives import KEPT_IN_OLE, OLE_STORAGE
from proxy.core.content_types.frames import mpeg_audio_within
from proxy.core.content_types.kinds import ContentKind, MediaType
from proxy.core.content_types.signatures import mime_behind_junk, mime_by_signature
from proxy.core.content_types.table import BINARY, PLAIN, known, mime_by_name, plain_mime
from proxy.core.content_types.texts import is_text, may_be_text, mime_of_text

_VAGUE: Final = frozenset({"", BINARY, PLAIN})
"""Claims that say nothing useful when there is another claim."""


def media_type(content: bytes, declared: str = "", name: str = "") -> MediaType:
    """The type of a content, which may be declared and may have a file name; both may be wrong.

    >>> media_type(b"%PDF-1.7 ...", declared="image/png").mime, media_type(b"a,b", name="x.csv").mime
    ('application/pdf', 'text/csv')
    >>> media_type(b"hello", declared="image/png").mime, media_type(b"\\x00\\x01\\x02", "image/png").kind.value
    ('text/plain', 'other')
    """
    claims = [plain_mime(declared), mime_by_name(name)]
    if found := mime_by_signature(content):
        finer = [claim for claim in claims if found == OLE_STORAGE and claim in KEPT_IN_OLE]
        return _typed(finer[0] if finer else found)
    if is_text(content):
        return _text(content, claims)
    if found := mime_behind_junk(content) or ("audio/mpeg" in claims and mpeg_audio_within(content)) or "":
        return _typed(found)
    legacy = [claim for claim in claims if _is_textual(claim)]
    if legacy and may_be_text(content):
        return _typed(_best(legacy), ContentKind.TEXT)
    return _typed(_best([claim for claim in claims if known(claim) is None and not _is_textual(claim)]))


def _text(content: bytes, claims: list[str]) -> MediaType:
    found = mime_of_text(content)
    if found == "image/svg+xml":
        return _typed(found)
    claim = _best([claim for claim in claims if _is_textual(claim)])
    return _typed(claim if claim not in _VAGUE else found or PLAIN, ContentKind.TEXT)


def _best(claims: list[str]) -> str:
    """The first claim that is specific; otherwise the first vague one."""
    return next((claim for claim in claims if claim not in _VAGUE), next(iter(claims), ""))


def _is_textual(mime: str) -> bool:
    line = known(mime)
    if line is not None:
        return line.kind is ContentKind.TEXT
    return mime.startswith("text/") or mime.endswith(("+json", "+xml", "+yaml"))


def _typed(mime: str, kind: ContentKind = ContentKind.OTHER) -> MediaType:
    """A type by its line in the table; for a type without one, by its kind."""
    line = known(mime or BINARY)
    if line is not None:
        return line
    return MediaType(mime, kind, "txt" if kind is ContentKind.TEXT else "bin")
