"""Status, headers and body → verdict: makes the report of a response, which the core judges."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from proxy.core.overflow import Sent, Verdict, judge
from proxy.wire.error_bodies.report import report_of

_ESCAPED: Final = re.compile(rb"\\u00(?:[37][0-9a]|[46][1-9a-f]|5[0-9a])", re.IGNORECASE)
"""An unnecessarily escaped digit or letter: such a request is not decoded, so the escape may hide anything."""


class RequestText:
    """A request, as the core's `SentText`."""

    def __init__(self, request: bytes) -> None:
        self._request = request

    @property
    def hides_letters(self) -> bool:
        """Whether plain letters or digits are escaped in it.

        >>> RequestText(b'"\\\\u0034096"').hides_letters, RequestText(b'"a \\\\u003c b"').hides_letters
        (True, False)
        """
        return _ESCAPED.search(self._request) is not None

    def holds(self, text: str) -> bool:
        """Whether it contains a text, literally or with the characters beyond ASCII escaped.

        >>> RequestText(b'{"content": "\\\\u4e2d 4096"}').holds("中 4096")
        True
        """
        plain = json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
        return plain in self._request or (not text.isascii() and json.dumps(text)[1:-1].encode() in self._request)


def judge_answer(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    *,
    sent: Sent | None = None,
    request: bytes = b"",
) -> Verdict:
    """The meaning of an upstream's response. Never raises; linear in the first 64 KiB of the body.

    `body` is the response or its beginning; for a stream, the first meaningful event, or everything if there was none.
    `request` is the JSON that was answered: the parts of it that a response repeats are no evidence.
    """
    return judge(report_of(status, headers, body), sent, RequestText(request) if request else None)
