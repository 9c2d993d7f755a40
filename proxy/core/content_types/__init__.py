"""The type of a content: `media_type(content, declared, name)` → `MediaType`.

Rule: the bytes decide. A declared type or a file name counts only where the bytes do not contradict it.
"""

from proxy.core.content_types.media_type import (
    BINARY,
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
from proxy.core.content_types.texts import data_url, decoded, is_address, last_of, looks_decoded_by_force, text_of

__all__ = [
    "BINARY",
    "ContentKind",
    "MediaType",
    "data_url",
    "decoded",
    "is_address",
    "is_binary",
    "kind_claimed",
    "known",
    "last_of",
    "looks_decoded_by_force",
    "media_type",
    "mime_by_name",
    "modality_of",
    "plain_mime",
    "text_of",
]
