"""Binary content in messages: where it stands, and how it is written there.

Rule: nothing here raises and nothing is changed. Only whole values are found, and in a text only what a signature, a
data URI or a declared type proves to be a file: real code and prose are never taken for one.
"""

from proxy.core.media.attachments.encoded import decoded, is_address
from proxy.core.media.attachments.found import Attachment, Shape
from proxy.core.media.attachments.parts import attachment_of
from proxy.core.media.attachments.signs import may_hold_media
from proxy.core.media.attachments.texts import Replacement, with_replaced

__all__ = [
    "Attachment",
    "Replacement",
    "Shape",
    "attachment_of",
    "decoded",
    "is_address",
    "may_hold_media",
    "with_replaced",
]
