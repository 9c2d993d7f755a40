"""What wires have in common whose bodies are JSON and whose keys are bearer tokens; a wire overrides what differs.

Rule: nothing in here knows a member of any API but `tools`, which all of them have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from proxy.core.conversation.message import Message
from proxy.core.overflow import Sent, Verdict
from proxy.core.text.jsontext import Raw
from proxy.errors import ProxyError
from proxy.wire import openai_errors
from proxy.wire.error_bodies import judge_answer
from proxy.wire.request import Request
from proxy.wire.tool_list import has_others

_LONG_BYTES: Final = 1_024
"""A shorter member costs less than the margin of any window. OpenAI's `metadata` may have 9 KB and is no prompt."""


_ADDS: Final = re.compile(
    r".*search.*|mcp_servers|plugins|documents|data_sources|tool_resources|vector_store.*|container"
)
"""Members of requests that make a server add text: `web_search_options` of OpenAI, `search_parameters` of xAI,
`enable_search` of DashScope, `plugins` of OpenRouter, `data_sources` of Azure, `documents` of Cohere and vLLM,
`mcp_servers` and `container` of Anthropic."""
_SAYS_NO: Final = frozenset({b"null", b"false", b"[]", b"{}", b'""'})


class JsonWire:
    """The protocol describes each member."""

    id_header: ClassVar[bytes] = b"x-request-id"
    content_type: ClassVar[bytes] = b"application/json"
    client_tools: ClassVar[re.Pattern[str]] = re.compile("(?:function|custom)?")
    """Types of tools that the client runs; any other one is the server's."""
    read_members: ClassVar[frozenset[str]] = frozenset({"tools"})
    """Members besides the messages that are counted on their own."""

    def tools(self, request: Request) -> bytes:
        """The member of that name."""
        return bytes(request.members.get("tools", b""))

    def long_members(self, request: Request) -> Mapping[str, bytes]:
        """All others that are long, but for metadata: an API's next member is counted before it is known here."""
        read = self.read_members
        return {
            name: bytes(raw)
            for name, raw in request.members.items()
            if len(raw) > _LONG_BYTES and name not in read and name != request.shape.messages and "metadata" not in name
        }

    def adds_to_prompt(self, request: Request, *, by_tools: bool = True) -> bool:
        """By members of these names, by tools that the client does not run, and by files, whose cost is unknown."""
        return (
            not request.shape.is_whole
            or request.has_files
            or any(_ADDS.fullmatch(name) and bytes(raw) not in _SAYS_NO for name, raw in request.members.items())
            or (by_tools and has_others(self.tools(request), self.client_tools))
        )

    def left_to_the_upstream(self, _: Request) -> Mapping[str, Raw]:
        """Nothing: the upstream holds nothing of the conversation."""
        return {}

    def unsealed(self, request: Request, _: Sequence[Message], __: str) -> Request:
        """Without any: which of it is broken is not said."""
        return request.unsealed()

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

    def asks_for_a_longer_window(self, _: Sequence[tuple[bytes, bytes]]) -> bool:
        """No header does that."""
        return False

    def credentials(self, key: str) -> Sequence[tuple[bytes, bytes]]:
        """A bearer token."""
        return [(b"authorization", b"Bearer " + key.encode())]

    def judged(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, sent: Sent | None, request: bytes
    ) -> Verdict:
        """By the words of any API's servers: gateways pass on other servers' words in whatever shape."""
        return judge_answer(status, headers, body, sent=sent, request=request)

    def error(self, error: ProxyError, request_id: str = "") -> bytes:  # noqa: ARG002 - the id is only in a header
        """In OpenAI's shape."""
        return openai_errors.error_body(error)

    def error_in_body(self, status: int, body: bytes) -> bytes:
        """In OpenAI's shape."""
        return openai_errors.error_in_body(status, body)
