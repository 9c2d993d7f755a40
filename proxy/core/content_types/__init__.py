"""The type of a content, and the modality that it needs: `media_type(content, declared, name)` → `MediaType`.

Rule: the bytes decide. A declared type or a file name counts only where the bytes do not contradict it.
"""

from proxy.core.content_types.media_type import (
    ContentKind,
    MediaType,
    is_binary,
    kind_claimed,
    known,
    media_type,
    mime_by_name,
    modality_of,
    plain_mime,
)

__all__ = [
    "ContentKind",
    "MediaType",
    "is_binary",
    "kind_claimed",
    "known",
    "media_type",
    "mime_by_name",
    "modality_of",
    "plain_mime",
]
