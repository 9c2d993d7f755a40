"""The bodies of `/v1/compress` and `/v1/retrieve`: headroom's contract, as its callers use it.

Rule: OpenAI's messages in, as many out, in the same order; unchanged messages keep their bytes. Unknown members are
ignored, and wrong types are refused. Source: headroom at 9fbd47ba, LiteLLM's guardrail at 1.106.
"""

from __future__ import annotations

import base64
import re
from collections import Counter as Counts
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, structs

from proxy.core.compaction import Plan
from proxy.core.text import Raw, jsontext
from proxy.errors import MalformedRequest, ProxyError
from proxy.wire.chat_completions import CHAT_COMPLETIONS, SHAPE
from proxy.wire.model_list import LARGEST_TOKENS
from proxy.wire.request import Request

WIRE: Final = CHAT_COMPLETIONS
"""Messages are those of chat completions."""
HASH: Final = re.compile(r"[a-f0-9]{12,24}")
"""The form that callers recognise."""
_OPTIONS: Final[dict[str, tuple[type | tuple[type, ...], str]]] = {
    "mode": (str, "a string"),
    "compress_user_messages": (bool, "true or false"),
    "target_ratio": ((int, float), "a number"),
    "protect_recent": (int, "a whole number from 0 on"),
    "protect_analysis_context": (bool, "true or false"),
}
"""Members of `config`, and the type of each."""


class CompressRequest(Struct, frozen=True):
    request: Request
    """The messages and the model; nothing else is read."""
    protected: int
    """Number of messages at the end that stay unchanged."""
    window_tokens: int | None
    """The context window that the conversation has to fit into; None: each message is shortened on its own."""


def compress_request_in(body: bytes) -> CompressRequest:
    """The request in a body. Raises MalformedRequest."""
    request = WIRE.parse(body, will_be_known=False)
    for index, message in enumerate(request.conversation.messages):
        if not message.raw.lstrip().startswith(b"{"):
            raise MalformedRequest(f"`messages[{index}]` must be an object", param="messages")
    _checked(request.members.get("model"), "model", str, "a string")
    window_tokens = _checked(
        request.members.get("token_budget"), "token_budget", int, "a whole number from 1 on", least=1
    )
    options = _options(request.members.get("config"))
    if window_tokens is not None:
        window_tokens = min(window_tokens, LARGEST_TOKENS)
    kept = {name: raw for name, raw in request.members.items() if name in ("model", SHAPE.messages)}
    return CompressRequest(structs.replace(request, members=kept), options.get("protect_recent") or 0, window_tokens)


def hash_in(body: bytes) -> str:
    """The hash that a body asks for. Raises MalformedRequest."""
    try:
        found = _checked(jsontext.members(body).get("hash"), "hash", str, "a string")
    except jsontext.NotJson as error:
        raise MalformedRequest(f"the body must be a JSON object: {error}") from None
    if found is None:
        raise MalformedRequest("the request has no `hash`", param="hash")
    return str(found)


def figures_of(plan: Plan) -> dict[str, Any]:
    """What the response says of the messages, in the model's tokens."""
    before, after = (plan.budget.model_tokens(size.tokens - plan.base.tokens) for size in (plan.before, plan.after))
    reasons = dict(sorted(Counts(edit.reason.value for edit in plan.edits).items()))
    return {
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": max(0, before - after),
        "compression_ratio": round(after / before, 4) if before else 1.0,
        "transforms_applied": list(reasons),
        "transforms_summary": reasons,
        "ccr_hashes": [artifact.hash for artifact in plan.artifacts],
    }


def compressed_body(plan: Plan, figures: Mapping[str, Any]) -> bytes:
    """The response to a request to compress."""
    messages = jsontext.join_array(plan.messages)
    return jsontext.join_object(
        {"messages": messages, **{name: jsontext.dump(found) for name, found in figures.items()}}
    )


def original_body(
    digest: str, content: bytes, media_type: str, *, tool: str, tokens: int, lines: tuple[int, int], count: int
) -> bytes:
    """The response to a request for an original, which is a data URL if it is not text. `lines`: the line counts of the
    message that contained it, before and after compression."""
    try:
        text = content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
    return jsontext.dump(
        {
            "hash": digest,
            "original_content": text,
            "original_tokens": tokens,
            "original_item_count": lines[0],
            "compressed_item_count": lines[1],
            "tool_name": tool,
            "retrieval_count": count,
        }
    )


def error_body(error: ProxyError) -> bytes:
    """An error in this API's shape."""
    kind = "invalid_request" if error.status == 400 else error.code
    return jsontext.dump({"error": {"type": kind, "message": error.message}})


def _options(raw: Raw | None) -> dict[str, Any]:
    if raw is None or bytes(raw) == b"null":
        return {}
    try:
        members = jsontext.members(raw)
    except jsontext.NotJson:
        raise MalformedRequest("`config` must be an object", param="config") from None
    least = {"protect_recent": 0}
    return {
        name: _checked(members.get(name), f"config.{name}", kind, words, least=least.get(name))
        for name, (kind, words) in _OPTIONS.items()
    }


def _checked(raw: Raw | None, name: str, kind: type | tuple[type, ...], words: str, *, least: int | None = None) -> Any:
    """The value of a member of the right type; None if the member is missing or null. Raises MalformedRequest."""
    found = jsontext.opened(raw)
    if found is None and (raw is None or bytes(raw) == b"null"):
        return None
    is_right = isinstance(found, kind) and (kind is bool or not isinstance(found, bool))
    if not is_right or (least is not None and found < least):
        raise MalformedRequest(f"`{name}` must be {words}", param=name)
    return found
