"""A model server of the Responses API that keeps responses, as OpenAI's does by default.

Rule: it refuses in the API's words what does not pair up in the whole of a conversation: an unknown id, a call without
an output, an output without a call, and, of a response that it keeps, reasoning without the item that followed it, or
an item without its reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from support.upstream.model import ScriptedModel
from support.upstream.replies import Answer, Json, Reply
from support.upstream.script import Over, Replies, Rule, Sent


def keeping(*replies: Reply) -> ScriptedModel:
    """A server that says these, one after the other, then numbers."""
    return ScriptedModel([paired, linked], Replies(replies))


def paired(sent: Sent) -> Answer | None:
    """Demand pairs in all that leads to the response, also in what is held."""
    found = sent.face.complaints({**sent.json, "previous_response_id": None})
    return sent.face.error(found[0]) if found else None


def linked(sent: Sent) -> Answer | None:
    """Demand that reasoning and what followed it come back together: vercel/ai#10829, openai-agents-python#3207."""
    found = next((text for output in sent.issued for text in _unlinked(sent.messages, output)), None)
    return None if found is None else sent.face.error(found)


def without_our_tool() -> Rule:
    """Refuse the proxy's own tool."""

    def rule(sent: Sent) -> Answer | None:
        is_offered = "read_artifact" in [name for name, _ in sent.face.tools(sent.json)]
        return sent.face.error("Invalid schema for function 'read_artifact'.") if is_offered else None

    return rule


def at_most(tokens: int) -> Rule:
    """Refuse what is longer, unless the server may truncate it."""
    rule = Over("prompt", tokens, "openai")
    return lambda sent: None if sent.json.get("truncation") == "auto" else rule(sent)


def _unlinked(items: Sequence[Any], output: Sequence[Json]) -> Iterator[str]:
    ids = [item.get("id") for item in items]
    for index, item in enumerate(output):
        if item["id"] not in ids:
            continue
        if item["type"] == "reasoning" and output[index + 1]["id"] not in ids[ids.index(item["id"]) + 1 :][:1]:
            yield f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
        thought = next((one["id"] for one in reversed(output[:index]) if one["type"] == "reasoning"), None)
        if thought is not None and thought not in ids:
            yield (
                f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: "
                f"'{thought}'."
            )
