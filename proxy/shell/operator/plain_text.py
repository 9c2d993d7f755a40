"""Text and figures as people read them on a terminal."""

from __future__ import annotations


def plain(text: str) -> str:
    """Foreign text for a terminal: no control characters, and nothing that changes the direction of writing.

    >>> plain("a\\x1b[31m\\u202eb")
    'a\ufffd[31m\ufffdb'
    """
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def number(count: int) -> str:
    """
    >>> number(12345)
    '12 345'
    """
    return f"{count:,}".replace(",", " ")
