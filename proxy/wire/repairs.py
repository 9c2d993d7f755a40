"""Repairs the history of a request whose calls and results do not pair up.

Rule: results that lack are added, results of no call are left out, and nothing else changes.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core.conversation.exchange import unpaired
from proxy.core.retrieval_tool.hidden_calls import HISTORY_BYTES, OwnCall
from proxy.wire.protocol import Wire
from proxy.wire.request import Request


def repaired(wire: Wire, request: Request, refusal: str, lacking: str) -> Request:
    """The request with a repaired history. `refusal`: the upstream's words, which name the call if only the upstream
    has it; `lacking`: the text of a result that lacks."""
    if request.shape.is_whole:
        return request.repaired(
            unpaired(request.conversation.messages, may_repeat=wire.results_may_repeat),
            lambda message, call: wire.message(wire.missing_result(message, call, lacking)),
        )
    result = wire.result(OwnCall(0, wire.unanswered_in(refusal), "", b""), lacking)
    history = bytes(HISTORY_BYTES) + request.history
    continued = wire.continued_from(request, wire.continues(request), [result])
    return replace(continued, history=history, healed=(0,))
