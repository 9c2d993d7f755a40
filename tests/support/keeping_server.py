"""A model server of the Responses API that keeps responses, as OpenAI's does by default, and says one reply after the
other: a journey's upstream.

Rule: it keeps what was asked and answered under the id of the response, and refuses in the API's words what does not
pair up in the whole of it: an unknown id, a call without an output, an output without a call, and, of a response that
it keeps, reasoning without the item that followed it, or an item without its reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from support import responses_answers
from support.journey import Received
from support.model_turns import Reply, Usage
from support.valid_responses import complaints, items_of


@dataclass
class KeepingServer:
    """`build(answer=…)`."""

    replies: list[Reply] = field(default_factory=list)
    kept: dict[str, list[Any]] = field(default_factory=dict)
    """Response → the items that lead to it, and its own."""
    issued: list[Sequence[Any]] = field(default_factory=list)
    """The outputs of those responses."""
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    """What was asked."""
    refusals: list[str] = field(default_factory=list)
    number: int = 0
    refuses_tool: bool = False
    """Whether it refuses the proxy's own tool."""
    most_tokens: int = 10**9
    """Of a conversation that it may not truncate."""

    async def __call__(self, request: Received, send: Send) -> bool:
        body = json.loads(request.body)
        self.bodies.append(body)
        answer = self._answer(body)
        headers = [(b"content-type", answer.content_type.encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return True

    def _answer(self, body: Mapping[str, Any]) -> responses_answers.Answer:
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self.kept:
            self.refusals.append(f"Previous response with id '{previous}' not found.")
            return responses_answers.error(self.refusals[-1], code="previous_response_not_found")
        items = [*self.kept.get(previous, ()), *items_of(body)]
        wrong = complaints({**body, "previous_response_id": None, "input": items})
        wrong += [text for output in self.issued for text in _unlinked(items, output)]
        if wrong:
            self.refusals += wrong
            return responses_answers.invalid(wrong[0])
        if responses_answers.counted({"input": items}) > self.most_tokens and body.get("truncation") != "auto":
            self.refusals.append(responses_answers.EXCEEDED)
            return responses_answers.error(responses_answers.WORDS, code=responses_answers.EXCEEDED)
        if self.refuses_tool and "read_artifact" in json.dumps(body.get("tools")):
            return responses_answers.error(
                "Invalid schema for function 'read_artifact'.", code="invalid_function_schema"
            )
        self.number += 1
        reply = self.replies.pop(0) if self.replies else Reply(f"Reply {self.number}.")
        answer, output = responses_answers.answered(body, reply, Usage(100, 0, 10), self.number)
        if body.get("store") is not False:
            self.kept[f"resp_{self.number:024d}"] = [*items, *output]
            self.issued.append(output)
        return answer


def _unlinked(items: Sequence[Any], output: Sequence[Any]) -> Iterator[str]:
    """What comes back of an output without what belongs to it: vercel/ai#10829, openai-agents-python#3207."""
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
