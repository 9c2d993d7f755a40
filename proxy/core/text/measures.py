"""How long a text is, and its beginning or end of a given length.

Rule: bytes are UTF-8, including lone surrogates, and no character is ever cut.
"""

from __future__ import annotations


def count_lines(text: str) -> int:
    """Lines of a text, the last one with or without a line feed.

    >>> count_lines(""), count_lines("a"), count_lines("a\\n"), count_lines("a\\nb")
    (0, 1, 1, 2)
    """
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def utf8_length(text: str) -> int:
    """Bytes of the text in UTF-8; a lone surrogate counts as three bytes.

    >>> utf8_length("é\\ud800")
    5
    """
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def first_bytes(text: str, max_bytes: int) -> str:
    """The longest beginning of a text that has at most `max_bytes` bytes in UTF-8.

    >>> first_bytes("aéz", 2), first_bytes("aéz", 3)
    ('a', 'aé')
    """
    encoded = text[: max(0, max_bytes)].encode("utf-8", "surrogatepass")
    end = max(0, min(max_bytes, len(encoded)))
    while end < len(encoded) and encoded[end] & 0xC0 == 0x80:
        end -= 1
    return encoded[:end].decode("utf-8", "surrogatepass")


def last_bytes(text: str, max_bytes: int) -> str:
    """The longest end of a text that has at most `max_bytes` bytes in UTF-8.

    >>> last_bytes("aéz", 2), last_bytes("aéz", 3)
    ('z', 'éz')
    """
    encoded = text[-max_bytes:].encode("utf-8", "surrogatepass") if max_bytes > 0 else b""
    start = max(0, len(encoded) - max_bytes)
    while start < len(encoded) and encoded[start] & 0xC0 == 0x80:
        start += 1
    return encoded[start:].decode("utf-8", "surrogatepass")
