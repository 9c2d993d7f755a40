"""Streams without a header: MPEG audio, AAC and transport streams, recognised by frames that follow each other.

Rule: one frame is a coincidence; the next must begin exactly where the first ends, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_BITRATES_KBIT: Final = {
    (3, 3): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (3, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (3, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 3): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 1): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""By version (3 is MPEG-1, 2 and 0 are MPEG-2 and 2.5) and layer (3 is layer I): ISO 11172-3 and 13818-3."""
_RATES_HZ: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_FRAMES: Final = 3
"""Number of frames that must follow each other."""
_ID3_SEARCH_BYTES: Final = 4_096
"""After an ID3 tag, and before the first frame: encoders pad with zeros."""
_JUNK_BYTES: Final = 16_384
"""Before the first whole frame; the longest frame has less than 3 KB."""
_MAX_PACKETS: Final = 8
_PACKETS: Final = ((188, 0), (192, 4))
"""Length of a packet of a transport stream, and the position of its sync byte (192: with a timestamp, as in M2TS)."""


def mpeg_audio(content: bytes) -> str:
    """MP3 and its predecessors, with or without an ID3 tag."""
    if content[:3] == b"ID3" and len(content) >= 10 and content[3] < 5 and max(content[6:10]) < 0x80:
        return _behind_id3(content)
    return "audio/mpeg" if _chain(content, 0, _mpeg_frame_bytes) else ""


def _behind_id3(content: bytes) -> str:
    """A tag says nothing about what follows it: usually MP3, but FLAC and AAC files have tags, too."""
    at = 10 + sum(byte << shift for byte, shift in zip(content[6:10], (21, 14, 7, 0), strict=True))
    behind = content[at : at + _ID3_SEARCH_BYTES].lstrip(b"\0")
    if behind.startswith(b"fLaC"):
        return "audio/flac"
    return "audio/aac" if aac(behind) else "audio/mpeg"


def aac(content: bytes) -> str:
    """AAC in ADTS frames."""
    return "audio/aac" if _chain(content, 0, _adts_frame_bytes) else ""


def transport_stream(content: bytes) -> str:
    """MPEG-2 packets of one length, each with its sync byte: ISO 13818-1, section 2.4.3."""
    for length, sync_at in _PACKETS:
        heads = [content[at : at + 4] for at in range(sync_at, min(len(content), length * _MAX_PACKETS), length)]
        if len(heads) >= _FRAMES and all(_begins_packet(head) for head in heads):
            return "video/mp2t"
    return ""


def _begins_packet(head: bytes) -> bool:
    """Sync byte, no error, and at least one of payload and adaptation field."""
    return len(head) == 4 and head[0] == 0x47 and not head[1] & 0x80 and head[3] & 0x30 != 0


def mpeg_audio_within(content: bytes) -> str:
    """MP3 cut out of a stream: it begins in the middle of a frame."""
    at = content.find(b"\xff", 0, _JUNK_BYTES)
    while at >= 0:
        if _chain(content, at, _mpeg_frame_bytes):
            return "audio/mpeg"
        at = content.find(b"\xff", at + 1, _JUNK_BYTES)
    return ""


def _chain(content: bytes, at: int, frame_bytes: Callable[[bytes], int]) -> bool:
    for number in range(_FRAMES):
        length = frame_bytes(content[at : at + 7])
        if not length:
            return (at == len(content) and number > 0) or (at > len(content) and number > 1)  # whole, or truncated
        at += length
    return True


def _mpeg_frame_bytes(header: bytes) -> int:
    """Length of the frame that begins with this header; 0 if there is none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return 0
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    rate, bits, padding = header[2] >> 2 & 3, header[2] >> 4, header[2] >> 1 & 1
    if version == 1 or layer == 0 or rate == 3 or bits in (0, 15):
        return 0
    bit_rate = _BITRATES_KBIT[3 if version == 3 else 2, layer][bits - 1] * 1_000
    hertz = _RATES_HZ[version][rate]
    if layer == 3:
        return (12 * bit_rate // hertz + padding) * 4
    return (72 if layer == 1 and version != 3 else 144) * bit_rate // hertz + padding


def _adts_frame_bytes(header: bytes) -> int:
    if len(header) < 7 or header[0] != 0xFF or header[1] & 0xF6 != 0xF0 or header[2] >> 2 & 15 > 12:
        return 0
    length = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
    return length if length > 7 else 0
