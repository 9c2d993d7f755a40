"""Request bodies of any wire: read, planned and written again.

Rule: what is read is what was sent. What fits goes as the very bytes; what was valid stays valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from support.planners import Models

from proxy.config import Settings
from proxy.core.models import ModelProfile
from proxy.core.notices import ArtifactAccess
from proxy.core.overflow import Terms
from proxy.core.text import jsontext
from proxy.errors import MalformedRequest, ProxyError
from proxy.shell.planning import Pipelines, Planned, Planner
from proxy.wire import Request, Wire

_WAY: Final = ArtifactAccess("/data/tool-output")
_NOTICE_TOKENS: Final = 100
"""A notice or a description may count more than what it replaces: blanks, or base64 in a text."""


@dataclass(frozen=True)
class RequestRules:
    """Properties of every request of one wire."""

    wire: Wire
    member: str
    """With the messages."""
    is_valid: Callable[[bytes], bool]
    """Whether a body is one that the API accepts."""

    def check(self, case: bytes) -> None:
        """Raises AssertionError for a broken rule; whatever else is raised is a defect, too."""
        try:
            request = self.wire.parse(case)
        except MalformedRequest as error:
            self.wire.error(error)
            return
        rendered = self.wire.render(request, request.conversation.messages, {})
        assert self._pieces(rendered) == self._pieces(case)
        self._check_continued(case, request)
        for window, tokenizer in ((1_000, "bytes"), (8_000, "o200k_base")):
            self._check_plan(request, window, tokenizer)

    def _pieces(self, body: bytes) -> tuple[dict[str, bytes], list[bytes]]:
        """The bytes of each member, and of each item of the message list."""
        members = {name: bytes(raw) for name, raw in jsontext.members(body).items()}
        if not members.get(self.member, b"").startswith(b"["):
            return members, []
        return members, [bytes(raw) for raw in jsontext.items(members.pop(self.member))]

    def _check_continued(self, case: bytes, request: Request) -> None:
        """Read on from what is known of its first messages, a request is the same."""
        for count in {1, len(request.ends) // 2, len(request.ends)}:
            if 0 < count <= len(request.ends):
                try:
                    known = self.wire.parse(case[: request.ends[count - 1]] + b"]}")
                except MalformedRequest:
                    continue  # it ends within what makes the end of a message certain
                again = self.wire.parse(case, known, known.shared_messages(case))
                assert again.conversation == request.conversation
                options = again.model, again.stream, again.reply_tokens, again.window_tokens
                assert options == (request.model, request.stream, request.reply_tokens, request.window_tokens)
                assert again.members.keys() == request.members.keys()

    def _check_plan(self, request: Request, window: int, tokenizer: str) -> None:
        planner = _planner(window, tokenizer)
        terms = Terms(_WAY, self.wire.with_tool(request, "auto"))
        try:
            planned = planner.made(self.wire, request, "tenant", terms, {})
        except ProxyError as error:
            raise AssertionError(f"no plan: {error.message}") from error
        self._check_sent(request, planned)
        again = planner.made(self.wire, request, "tenant", terms, {})
        assert again.body() == planned.body()
        goal = max(1, planned.plan.after.tokens // 2)
        for others in (terms._replace(goal_tokens=goal), terms._replace(keeping=False)):
            self._check_sent(request, planner.made(self.wire, request, "tenant", others, {}))

    def _check_sent(self, request: Request, planned: Planned) -> None:
        sent = planned.body()
        if not planned.changed:
            assert sent is request.body
            return
        if self.is_valid(request.body):
            assert self.is_valid(sent)
        # For a goal that cannot be met, the retry strategy sees that it is smaller; what does not fit is not sent.
        if planned.inputs.terms.goal_tokens is None and planned.plan.may_be_sent:
            most = max(planned.plan.before.tokens, planned.plan.budget.room_tokens)
            assert planned.plan.after.tokens <= most + _NOTICE_TOKENS * len(planned.plan.edits)


def without(complaints: Callable[[Any], Sequence[str]]) -> Callable[[bytes], bool]:
    """Whether a body is one of which an API has no complaint."""

    def is_valid(body: bytes) -> bool:
        try:
            return not complaints(json.loads(body))
        except (AttributeError, TypeError, ValueError, KeyError, RecursionError):  # of an invalid shape
            return False

    return is_valid


@cache
def _planner(window: int, tokenizer: str) -> Planner:
    return Planner(Pipelines(Settings()), Models(lambda model, _: ModelProfile(model, window, tokenizer=tokenizer)))
