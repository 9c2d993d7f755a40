"""Whether the numbers of a refusal may be the client's own words, which some upstreams repeat in their errors.

Rule: what a client may have written is no evidence of what a model takes: other clients would pay for it.
"""

from __future__ import annotations

import json
import re
from typing import Final

from proxy.core.overflow.verdict import Verdict

_BESIDE: Final = r"[^\s\d]{1,40}"
"""A word beside a number: alone, a number such as 4096 stands in many a conversation."""
_ESCAPED: Final = re.compile(rb"\\u00(?:[37][0-9a]|[46][1-9a-f]|5[0-9a])", re.IGNORECASE)
"""A digit or a letter that needs no escape: what it stands for is not looked for, so it may be anything."""


def may_be_echoed(verdict: Verdict, request: bytes) -> bool:
    """Whether the limit or the count of a refusal, with the word before or after it, stands in the request as well.

    >>> from proxy.core.overflow.verdict import Kind
    >>> verdict = Verdict(Kind.PROMPT, limit=600, upstream_message="No model 'context length of 600 tokens'")
    >>> may_be_echoed(verdict, b'{"model": "context length of 600 tokens"}'), may_be_echoed(verdict, b'{"seed": 600}')
    (True, False)
    """
    numbers = [number for number in (verdict.limit, verdict.prompt, verdict.requested) if number is not None]
    snippets = [snippet for number in numbers for snippet in _snippets(verdict.upstream_message, number)]
    return bool(snippets) and (
        _ESCAPED.search(request) is not None
        or any(json.dumps(snippet, ensure_ascii=False)[1:-1].encode() in request for snippet in snippets)
    )


def _snippets(message: str, number: int) -> list[str]:
    """A number as the message prints it, once with the word before and once with the word after it."""
    grouped = r"\D?".join(re.findall(r"\d{1,3}(?=(?:\d{3})*$)", str(number)))
    printed = rf"(?<!\d){grouped}(?!\d)"
    before = re.findall(rf"{_BESIDE}\s{{1,3}}{printed}", message)
    return before + re.findall(rf"{printed}\s{{0,3}}{_BESIDE}", message)
