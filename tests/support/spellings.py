"""One conversation as the four APIs write it: what a drawn agent says, brings and gets.

Rule: an item that was written is never written anew, so the bytes of a prefix stay what they were.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from support import messages_journey, responses_journey, valid_messages, valid_ollama, valid_responses
from support.media_samples import PDF, PNG, anthropic_block, data_url, file_part, image_part
from support.upstream.chat_answers import InvalidRequest, check_messages

Json = dict[str, Any]
Items = list[Json]
SEAL: Final = "c2VhbGVk"
"""Of another model's thinking."""


LEAST_THINKING_TOKENS: Final = 1024
"""https://platform.claude.com/docs/en/build-with-claude/extended-thinking"""


class ErrorInReply(Exception):
    """A stream that ends in an error; the text is what it says."""


@dataclass(frozen=True)
class ParsedReply:
    """A reply as its client keeps it."""

    items: Items
    calls: Sequence[str]
    """The ids of the calls that the client is to answer."""
    text: str


class Spelling(Protocol):
    """An API, as a client and a server write it."""

    name: str
    path: str
    member: str
    """With the conversation."""

    def user(self, text: str, media: Sequence[str] = ()) -> Items: ...
    def system(self, text: str) -> Items: ...
    def called(self, calls: Sequence[tuple[str, Json]], text: str = "", seal: str = "") -> Items: ...
    def results(self, results: Sequence[tuple[str, str]], media: Sequence[str] = (), words: str = "") -> Items: ...
    def searched(self, number: int) -> Items: ...
    def request(self, system: str, items: Items, tools: Sequence[str], reply_tokens: int | None) -> Json: ...
    def formatted(self) -> Json: ...
    def thinking(self, reply_tokens: int | None) -> Json:
        """Members that switch it on, beside this reply limit."""

    def complaints(self, body: Json) -> Sequence[str]:
        """What is wrong with a request, more than its server refuses on Ollama's API."""

    def reply_in(self, body: bytes, *, streamed: bool) -> ParsedReply: ...


class Chat:
    """Chat completions."""

    name, path, member = "chat", "/v1/chat/completions", "messages"

    def user(self, text: str, media: Sequence[str] = ()) -> Items:
        parts = {"image": image_part(), "file": file_part(PDF)}
        content = [{"type": "text", "text": text}, *(parts[kind] for kind in media)]
        return [{"role": "user", "content": content if media else text}]

    def system(self, text: str) -> Items:
        return [{"role": "system", "content": text}]

    def called(self, calls: Sequence[tuple[str, Json]], text: str = "", seal: str = "") -> Items:
        functions = [(name, {"name": "bash", "arguments": json.dumps(given)}) for name, given in calls]
        made = [{"id": name, "type": "function", "function": function} for name, function in functions]
        details = [{"type": "reasoning.text", "text": "Hm.", "signature": seal}] if seal else []
        more = {"tool_calls": made} if made else {}
        more |= {"reasoning_details": details} if details else {}
        return [{"role": "assistant", "content": text or None, **more}]

    def results(self, results: Sequence[tuple[str, str]], media: Sequence[str] = (), words: str = "") -> Items:
        found: Items = [{"role": "tool", "tool_call_id": name, "content": text} for name, text in results]
        if media:
            found[-1]["content"] = [{"type": "text", "text": results[-1][1]}, image_part()]
        return [*found, *self.user(words)] if words else found

    def searched(self, number: int) -> Items:
        note = {"type": "url_citation", "url_citation": {"url": "https://a.invalid", "title": f"page {number}"}}
        return [{"role": "assistant", "content": f"Found page {number}.", "annotations": [note]}]

    def request(self, system: str, items: Items, tools: Sequence[str], reply_tokens: int | None) -> Json:
        offered = [{"type": "function", "function": {"name": t, "parameters": {"type": "object"}}} for t in tools]
        body: Json = {"messages": [*self.system(system), *items]}
        body |= {"tools": offered} if offered else {}
        return body if reply_tokens is None else body | {"max_tokens": reply_tokens}

    def thinking(self, reply_tokens: int | None) -> Json:
        return {"reasoning_effort": "high"}

    def formatted(self) -> Json:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}}

    def complaints(self, body: Json) -> Sequence[str]:
        try:
            check_messages(body["messages"])
        except InvalidRequest as error:
            return [error.message]
        return []

    def reply_in(self, body: bytes, *, streamed: bool) -> ParsedReply:
        message = _put_together(body) if streamed else json.loads(body)["choices"][0]["message"]
        message.setdefault("role", "assistant")
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        return ParsedReply([message], calls, message.get("content") or "")


class Messages:
    """Anthropic's API."""

    name, path, member = "messages", "/v1/messages", "messages"

    def user(self, text: str, media: Sequence[str] = ()) -> Items:
        blocks = {"image": anthropic_block(), "file": anthropic_block(PDF, "application/pdf", "document")}
        content = [{"type": "text", "text": text}, *(blocks[kind] for kind in media)]
        return [{"role": "user", "content": content if media else text}]

    def system(self, text: str) -> Items:
        return [{"role": "system", "content": text}]

    def called(self, calls: Sequence[tuple[str, Json]], text: str = "", seal: str = "") -> Items:
        blocks: Items = [{"type": "thinking", "thinking": "Hm.", "signature": seal}] if seal else []
        blocks += [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": name, "name": "bash", "input": given} for name, given in calls]
        return [{"role": "assistant", "content": blocks}]

    def results(self, results: Sequence[tuple[str, str]], media: Sequence[str] = (), words: str = "") -> Items:
        blocks: Items = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results]
        if media:
            blocks[-1]["content"] = [{"type": "text", "text": results[-1][1]}, anthropic_block()]
        blocks += [{"type": "text", "text": words}] if words else []
        return [{"role": "user", "content": blocks}]

    def searched(self, number: int) -> Items:
        name = f"srvtoolu_{number}"
        page = {
            "type": "web_search_result",
            "url": "https://a.invalid",
            "title": "a",
            "encrypted_content": "RW5j" * 400,
        }
        return [
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": name, "name": "web_search", "input": {"query": "builds"}},
                    {"type": "web_search_tool_result", "tool_use_id": name, "content": [page]},
                    {"type": "text", "text": f"Found page {number}."},
                ],
            }
        ]

    def request(self, system: str, items: Items, tools: Sequence[str], reply_tokens: int | None) -> Json:
        body: Json = {"system": system, "messages": items, "max_tokens": reply_tokens or 512}
        offered = [{"name": tool, "input_schema": {"type": "object"}} for tool in tools]
        return body | ({"tools": offered} if offered else {})

    def thinking(self, reply_tokens: int | None) -> Json:
        least = LEAST_THINKING_TOKENS
        return {
            "thinking": {"type": "enabled", "budget_tokens": least},
            "max_tokens": max(reply_tokens or 0, least + 512),
        }

    def formatted(self) -> Json:
        return {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}

    def complaints(self, body: Json) -> Sequence[str]:
        return valid_messages.complaints(body)

    def reply_in(self, body: bytes, *, streamed: bool) -> ParsedReply:
        if streamed and b'"type": "error"' in body:
            raise ErrorInReply(body.decode())
        message = messages_journey.message_of(body.decode()) if streamed else json.loads(body)
        content = message["content"]
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        text = "".join(block["text"] for block in content if block["type"] == "text")
        return ParsedReply([{"role": "assistant", "content": content or "…"}], calls, text)


class Responses:
    """OpenAI's newer API, of which the client keeps the conversation."""

    name, path, member = "responses", "/v1/responses", "input"

    def user(self, text: str, media: Sequence[str] = ()) -> Items:
        return [{"role": "user", "content": self._parts(text, media) if media else text}]

    def _parts(self, text: str, media: Sequence[str]) -> Items:
        file = {"type": "input_file", "filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")}
        parts = {"image": {"type": "input_image", "image_url": data_url(PNG, "image/png")}, "file": file}
        return [{"type": "input_text", "text": text}, *(parts[kind] for kind in media)]

    def system(self, text: str) -> Items:
        return [{"role": "developer", "content": text}]

    def called(self, calls: Sequence[tuple[str, Json]], text: str = "", seal: str = "") -> Items:
        found: Items = []
        if seal:
            found.append({"type": "reasoning", "id": f"rs_{calls[0][0]}", "summary": [], "encrypted_content": seal})
        if text:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            found.append({"type": "message", "role": "assistant", "content": content})
        made = [{"call_id": name, "name": "bash", "arguments": json.dumps(given)} for name, given in calls]
        return [*found, *({"type": "function_call", **call} for call in made)]

    def results(self, results: Sequence[tuple[str, str]], media: Sequence[str] = (), words: str = "") -> Items:
        found: Items = [{"type": "function_call_output", "call_id": name, "output": text} for name, text in results]
        if media:
            found[-1]["output"] = self._parts(results[-1][1], ["image"])
        return [*found, *self.user(words)] if words else found

    def searched(self, number: int) -> Items:
        action = {"type": "search", "query": "builds"}
        found = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": action}
        return [found, *self.called([], f"Found page {number}.")]

    def request(self, system: str, items: Items, tools: Sequence[str], reply_tokens: int | None) -> Json:
        body: Json = {"instructions": system, "input": items, "store": False}
        offered = [{"type": "function", "name": tool, "parameters": {"type": "object"}} for tool in tools]
        body |= {"tools": offered} if offered else {}
        return body if reply_tokens is None else body | {"max_output_tokens": reply_tokens}

    def thinking(self, reply_tokens: int | None) -> Json:
        return {"reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"]}

    def formatted(self) -> Json:
        return {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}}

    def complaints(self, body: Json) -> Sequence[str]:
        return valid_responses.complaints(body)

    def reply_in(self, body: bytes, *, streamed: bool) -> ParsedReply:
        if streamed and b"event: response.completed" not in body:
            raise ErrorInReply(body.decode())
        response = responses_journey.completed(body.decode()) if streamed else json.loads(body)
        calls = [item["call_id"] for item in response["output"] if item["type"] == "function_call"]
        texts = [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]
        return ParsedReply(response["output"], calls, "".join(texts))


class Ollama:
    """Ollama's own API, as ollama-python writes it: calls without ids, results that name their tool. Thinking has no
    seals, and no server looks for calls without results."""

    name, path, member = "ollama", "/api/chat", "messages"

    def user(self, text: str, media: Sequence[str] = ()) -> Items:
        images = [base64.b64encode(PNG).decode() for kind in media if kind == "image"]  # it takes nothing else
        return [{"role": "user", "content": text} | ({"images": images} if images else {})]

    def system(self, text: str) -> Items:
        return [{"role": "system", "content": text}]

    def called(self, calls: Sequence[tuple[str, Json]], text: str = "", seal: str = "") -> Items:
        made = [{"function": {"name": "bash", "arguments": given}} for _, given in calls]
        message: Json = {"role": "assistant"} | ({"content": text} if text else {})
        return [message | ({"thinking": "Hm."} if seal else {}) | ({"tool_calls": made} if made else {})]

    def results(self, results: Sequence[tuple[str, str]], media: Sequence[str] = (), words: str = "") -> Items:
        found: Items = [{"role": "tool", "content": text, "tool_name": "bash"} for _, text in results]
        if media:
            found[-1]["images"] = [base64.b64encode(PNG).decode()]
        return [*found, *self.user(words)] if words else found

    def searched(self, number: int) -> Items:
        return self.called([], f"Found page {number}.")

    def request(self, system: str, items: Items, tools: Sequence[str], reply_tokens: int | None) -> Json:
        offered = [{"type": "function", "function": {"name": t, "parameters": {"type": "object"}}} for t in tools]
        options = {} if reply_tokens is None else {"num_predict": reply_tokens}
        return {"stream": False, "options": options, "messages": [*self.system(system), *items], "tools": offered}

    def thinking(self, reply_tokens: int | None) -> Json:
        return {"think": True}

    def formatted(self) -> Json:
        return {"format": {"type": "object"}}

    def complaints(self, body: Json) -> Sequence[str]:
        return valid_ollama.complaints(body)

    def reply_in(self, body: bytes, *, streamed: bool) -> ParsedReply:  # one object is read like lines
        message: Json = {"role": "assistant", "content": ""}
        for line in map(json.loads, body.splitlines()):
            if "error" in line:
                raise ErrorInReply(line["error"])
            for name, found in line["message"].items():
                if name != "role":
                    message[name] = message[name] + found if name in message else found
        for call in message.get("tool_calls") or ():  # ollama-python's types have neither an id nor an index
            call.pop("id", None)
            call["function"].pop("index", None)
        names = [call["function"]["name"] for call in message.get("tool_calls") or ()]
        return ParsedReply([message], names, message["content"])


def _put_together(body: bytes) -> Json:
    """The message of a stream of chat completions."""
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    for event in _events(body):
        if "error" in event:
            raise ErrorInReply(body.decode())
        for choice in event["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            for piece in delta.get("tool_calls") or ():
                if "id" in piece:
                    calls[piece["index"]] = {**piece, "function": {**piece["function"]}}
                    del calls[piece["index"]]["index"]
                else:
                    calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return message | ({"tool_calls": list(calls.values())} if calls else {})


def _events(body: bytes) -> Iterator[Json]:
    for line in body.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


SPELLINGS: Final[Mapping[str, Spelling]] = {one.name: one for one in (Chat(), Messages(), Responses(), Ollama())}
