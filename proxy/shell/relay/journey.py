"""One chat request on its way, and what each of its sends looks like.

Rule: a request that no plan and no attempt changes goes upstream as the original bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from proxy.core.overflow.retry import Attempt, Rung, Situation
from proxy.core.text.discreet import Discreet
from proxy.shell.http.bodies import Received
from proxy.shell.planning.planned import Planned
from proxy.shell.resources.waiting import Kept
from proxy.shell.upstream.client import Headers

UNCOMPRESSED: Final = frozenset({b"identity"})
READABLE: Final = UNCOMPRESSED | {b"gzip", b"x-gzip", b"deflate"}
"""Compressions of responses that the proxy can read; a refusal in any other would go unnoticed."""

PassEarly: TypeAlias = Callable[[Headers, bytes], Awaitable[None]]
"""Takes what an upstream sends before its response has content, with the response's headers."""


class EarlyBytes(Struct):
    """What goes to a client before it is decided which response it gets."""

    pass_on: PassEarly
    client_streams: bool = False
    """Whether the client is known to want a stream; only then are comments sent while it waits."""


class PlanFor(Protocol):
    """Plans a second send of so many tokens by our estimate."""

    async def __call__(self, goal_tokens: int, most_tokens: int | None = None, *, keeping: bool) -> Planned:
        """`most_tokens`: if what must stay exceeds the goal. `keeping`: whether artifacts can be kept."""


class Journey(Discreet, frozen=True):
    """A request as it came, and the plan for it."""

    target: bytes
    headers: Headers
    received: Received
    """Compressed or not."""
    planned: Planned
    tenant: str
    kept: Kept
    """Keeps all that is needed to send it again."""
    plan_for: PlanFor | None = None
    """Plans a harsher second send that may change more than the request itself: a page that was read for the model can
    be replaced by a smaller one."""
    larger: Planned | None = None
    """A larger plan that is sent first, to find out whether a learned window is still right."""
    early: EarlyBytes | None = None
    """Takes what a response sends before it has content; None: those bytes wait for the rest."""

    def after(self, cured: Planned) -> Journey:
        """The same after one cure: the next one is made of what was sent. What replaces a page knows no other cure."""
        return replace(self, planned=cured, larger=None, plan_for=None)

    def uncompressed(self) -> Journey:
        """The same, for a client that already has the beginning of a response in uncompressed bytes."""
        return replace(self, headers=accepting(self.headers, UNCOMPRESSED))

    @property
    def situation(self) -> Situation:
        """What the retry strategy must know."""
        first = self.first
        plan = first.plan
        return Situation(
            estimate_tokens=plan.after.tokens,
            chars=plan.after.chars,
            bytes=plan.after.bytes,
            reply_tokens=first.reply_tokens or first.request.reply_tokens,
            edited=first.changed,
            original_could_fit=plan.budget.admits(plan.before),
            tried_over_tokens=None if self.larger is None else self.planned.inputs.profile.window_tokens,
            has_our_tool=first.offered,
            fixed_tokens=plan.fixed_tokens,
        )

    @property
    def first(self) -> Planned:
        """What is sent first."""
        return self.larger or self.planned

    def rendered(self, planned: Planned, attempt: Attempt) -> tuple[Headers, bytes]:
        """Headers and body of one send."""
        if attempt.rung is Rung.ORIGINAL or not (planned.changed or attempt.reply_tokens):
            return self.headers, self.received.body
        plain = without_encoding(self.headers)
        reply = attempt.reply_tokens
        if reply is not None and planned.reply_tokens is not None:
            reply = min(reply, planned.reply_tokens)
        return plain, planned.body(reply)


def without_encoding(headers: Headers) -> Headers:
    """The headers of a body that is not compressed."""
    return [(name, value) for name, value in headers if name != b"content-encoding"]


def accepting(headers: Headers, encodings: frozenset[bytes]) -> Headers:
    """Request headers that accept no compression of the response other than these.

    >>> accepting([(b"accept-encoding", b"br, gzip;q=0.9, zstd")], READABLE)
    [(b'accept-encoding', b'gzip;q=0.9')]
    >>> accepting([(b"accept-encoding", b"br")], READABLE)
    [(b'accept-encoding', b'identity')]
    """
    return [(name, _among(encodings, value) if name == b"accept-encoding" else value) for name, value in headers]


def _among(encodings: frozenset[bytes], accepted: bytes) -> bytes:
    options = accepted.split(b",")
    kept = [option.strip() for option in options if option.partition(b";")[0].strip().lower() in encodings]
    return accepted if len(kept) == len(options) else b", ".join(kept) or b"identity"
