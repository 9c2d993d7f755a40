"""The upstream's counts, read from a response: `usage`, in a body, or in the first and the last events of a stream.

Rule: the last occurrence counts; the model's own text is not searched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.core.overflow import Counted

_USAGE: Final = re.compile(r'"usage"\s*:\s*(?=\{)')
"""In the model's own text, quotes are escaped."""
_DECODER: Final = json.JSONDecoder()
_READ: Final = "cache_read_input_tokens"
_PROMPT: Final = ("input_tokens", "cache_creation_input_tokens", _READ)
"""`input_tokens` alone counts the tokens that were neither read from a cache nor written to one.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching#tracking-cache-performance"""
_REPLY: Final = "output_tokens"


def counted_in(told: bytes) -> Counted | None:
    """The counts in these parts of a response; None if they do not count the prompt.

    >>> counted_in(b'{"usage":{"input_tokens":20,"cache_read_input_tokens":4056}} ... "usage":{"output_tokens":7}')
    Counted(prompt=4076, reply=7, cached=4056)
    """
    usage: dict[str, int] = {}
    for found in _usages(told):
        usage |= {name: number for name, number in numbers_in(found).items() if number or name not in usage}
    prompt = prompt_in(usage)
    return None if prompt is None else Counted(prompt, usage.get(_REPLY, 0), usage.get(_READ, 0))


def prompt_in(usage: Mapping[str, int]) -> int | None:
    """Tokens of the whole prompt; None if nobody counted."""
    return sum(usage.get(name, 0) for name in _PROMPT) if _PROMPT[0] in usage else None


def numbers_in(usage: Any) -> dict[str, int]:
    """The counts in a `usage`."""
    found = usage if isinstance(usage, Mapping) else {}
    return {name: number for name, number in found.items() if type(number) is int}


def _usages(told: bytes) -> Iterator[Any]:
    text = told.decode("utf-8", "replace")
    for match in _USAGE.finditer(text):
        try:
            yield _DECODER.raw_decode(text, match.end())[0]
        except (ValueError, RecursionError):
            continue
