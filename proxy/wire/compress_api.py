"""The bodies of headroom's `/v1/compress`, as its callers use it.

Rule: OpenAI's messages in, as many out, in the same order; unchanged messages keep their bytes. Unknown members are
ignored, and wrong types of others refused. Source: headroom at 9fbd47ba, LiteLLM's guardrail at 1.106.
"""

from __future__ import annotations

import base64
import re
from collections import Counter as Counts
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

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


class _Config(Struct):
    """What is read of `config`."""

    protect_recent: Annotated[int, Meta(ge=0)] | None = None


class _Options(Struct):
    """Members of a request beside its messages."""

    model: str | None = None
    token_budget: Annotated[int, Meta(ge=1)] | None = None
    config: _Config | None = None


class _Wanted(Struct):
    """A request for an original."""

    hash: str


_Read = TypeVar("_Read", _Options, _Wanted)


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
    options = _read(request.members, _Options)
    window_tokens = options.token_budget and min(options.token_budget, LARGEST_TOKENS)
    protected = options.config.protect_recent if options.config else None
    kept = {name: raw for name, raw in request.members.items() if name in ("model", SHAPE.messages)}
    return CompressRequest(structs.replace(request, members=kept), protected or 0, window_tokens)


def hash_in(body: bytes) -> str:
    """The hash that a body asks for. Raises MalformedRequest."""
    try:
        return _read(jsontext.members(body), _Wanted).hash
    except jsontext.NotJson as error:
        raise MalformedRequest(f"the body must be a JSON object: {error}") from None


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


def _read(members: Mapping[str, Raw], kind: type[_Read]) -> _Read:
    """The members that `kind` names. Raises MalformedRequest."""
    found = {name: jsontext.opened(raw) for name, raw in members.items() if name in kind.__struct_fields__}
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        name = str(error).partition("`$.")[2].rstrip("`")
        raise MalformedRequest(str(error), param=name or None) from None
