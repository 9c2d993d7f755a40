"""What wires have in common whose bodies are JSON and whose keys are bearer tokens; a wire overrides what differs.

Rule: nothing in here knows a member of any API but `tools`, which all of them have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from proxy.core.overflow import Sent, Verdict
from proxy.core.text.jsontext import Raw
from proxy.core.text.rope import Body
from proxy.errors import ProxyError
from proxy.wire import openai_errors
from proxy.wire.error_bodies import judge_answer
from proxy.wire.request import Request


class JsonWire:
    """The protocol describes each member."""

    id_header: ClassVar[bytes] = b"x-request-id"
    content_type: ClassVar[bytes] = b"application/json"

    def tools(self, request: Request) -> bytes:
        """The member of that name."""
        return bytes(request.members.get("tools", b""))

    def left_to_the_upstream(self, _: Request) -> Mapping[str, Raw]:
        """Nothing: the upstream holds nothing of the conversation."""
        return {}

    def continues(self, _: Request) -> str:
        """Nothing, for the same reason."""
        return ""

    def continued_from(self, request: Request, _: str, __: Sequence[bytes]) -> Request:
        """The same, for the same reason."""
        return request

    def unanswered_in(self, _: str) -> str:
        """Nothing, for the same reason."""
        return ""

    def named_in(self, _: Request, __: bytes) -> str:
        """Nothing, for the same reason."""
        return ""

    def credentials(self, key: str) -> Sequence[tuple[bytes, bytes]]:
        """A bearer token."""
        return [(b"authorization", b"Bearer " + key.encode())]

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: Body
    ) -> Verdict:
        """By the words of any API's servers: gateways pass on other servers' words in whatever shape."""
        return judge_answer(status, headers, body, sent=sent, request=request)

    def error(self, error: ProxyError, request_id: str = "") -> bytes:  # noqa: ARG002 - the id is only in a header
        """In OpenAI's shape."""
        return openai_errors.error_body(error)

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """In OpenAI's shape."""
        return openai_errors.error_in_body(status, body)
