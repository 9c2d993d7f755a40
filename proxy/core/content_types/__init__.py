"""The type of a content, and the modality that it needs: `media_type(content, declared, name)` → `MediaType`.

Rule: the bytes decide. A declared type or a file name counts only where the bytes do not contradict it; and nothing
here raises, whatever the bytes.
"""

from proxy.core.content_types.forced import looks_decoded_by_force
from proxy.core.content_types.kinds import ContentKind, MediaType, audio_format, kind_claimed, modality_of
from proxy.core.content_types.media_type import media_type
from proxy.core.content_types.table import plain_mime
from proxy.core.content_types.texts import text_of

__all__ = [
    "ContentKind",
    "MediaType",
    "audio_format",
    "kind_claimed",
    "looks_decoded_by_force",
    "media_type",
    "modality_of",
    "plain_mime",
    "text_of",
]
