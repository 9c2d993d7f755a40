"""A small model server: OpenAI's chat API over a policy, with a real token count, a window and real refusals.

Rule: it treats every client alike and keeps nothing between requests. A tool call and its results belong together, as
at OpenAI: a careless cut breaks exactly this. Alone: `python -m proxy.demo.model_server`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from proxy.demo.incident import detective
from proxy.demo.model import CREATED, ChatMessage, Completion, Policy, prompt_tokens, scripted, tool_tokens
from proxy.demo.refusals import FLAVOURS, OPENAI, Flavour, Load

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")


class InvalidRequest(Exception):
    """The request is refused with a 400 in OpenAI's shape."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        """The body of the response."""
        return {"error": {"message": self.message, "type": "invalid_request_error", "param": self.param, "code": None}}


def check_messages(messages: object) -> Sequence[ChatMessage]:
    """The messages of a valid request. Raises InvalidRequest."""
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("Invalid 'messages': expected an array with at least one message.", "messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRequest(f"Invalid type for 'messages[{index}]': expected an object.", f"messages.[{index}]")
        if message.get("role") not in ROLES:
            allowed = ", ".join(f"'{role}'" for role in ROLES)
            wrong = f"Invalid value for 'messages[{index}].role'. Supported values are: {allowed}."
            raise InvalidRequest(wrong, f"messages.[{index}].role")
    _check_pairing(messages)
    return messages


def _check_pairing(messages: Sequence[ChatMessage]) -> None:
    """Both texts from one report, with these `param`s: https://github.com/sdcb/chats/pull/132."""
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        at = f"messages.[{index}].role"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise InvalidRequest(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    at,
                )
            open_calls.remove(message["tool_call_id"])
            continue
        _all_answered(open_calls, at)
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        open_calls = (
            [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        )
    _all_answered(open_calls, "messages")


def _all_answered(open_calls: Sequence[str], at: str) -> None:
    if open_calls:
        raise InvalidRequest(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}",
            at,
        )


MODEL: Final = "embedded-model"
"""The one model in `/v1/models`; any name in a request is accepted and echoed."""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Far over any window; a larger body is not a chat request."""
POLICIES: Final[dict[str, Policy]] = {"scripted": scripted, "detective": detective}


def create_model_server(window_tokens: int, flavour: Flavour = OPENAI, policy: Policy = scripted) -> Starlette:
    """The server as an ASGI application: `/v1/chat/completions` (JSON and streams) and `/v1/models`."""
    endpoint = _Endpoint(window_tokens, flavour, policy)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
            Route("/v1/models", endpoint.models),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Endpoint:
    window_tokens: int
    flavour: Flavour
    policy: Policy

    async def models(self, _: Request) -> Response:
        model = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "context-proxy"}
        listed = model | dict(self.flavour.model_fields(self.window_tokens))
        return _json({"object": "list", "data": [listed]})

    async def chat(self, request: Request) -> Response:
        try:
            body = await _read(request)
            return await run_in_threadpool(self._answer, body)  # counting takes milliseconds that others need
        except InvalidRequest as invalid:
            return _json(invalid.body(), 400)
        except ClientDisconnect:
            return Response(status_code=499)

    def _answer(self, body: bytes) -> Response:
        wanted = _decoded(body)
        messages = check_messages(wanted.get("messages"))
        reply_tokens = _reply_limit(wanted)
        load = Load(
            prompt_tokens(messages),
            tool_tokens(wanted.get("tools")),
            reply_tokens,
            self.window_tokens,
        )
        if not self.flavour.accepts(load):
            return _json(dict(self.flavour.refusal(load)), 400)
        left = self.window_tokens - load.prompt_tokens
        room = min(reply_tokens, left) if reply_tokens else left
        model = str(wanted.get("model") or MODEL)
        completion = Completion.make(body, model, self.policy(messages), load.prompt_tokens, room)
        if not wanted.get("stream"):
            return _json(completion.whole())
        options = wanted.get("stream_options")
        events: Iterator[bytes] = completion.events(isinstance(options, dict) and bool(options.get("include_usage")))
        return StreamingResponse(events, media_type="text/event-stream")


def _json(content: object, status_code: int = 200) -> Response:
    """ASCII only: a model's name may contain half a surrogate pair, which has no UTF-8."""
    return Response(json.dumps(content), status_code, media_type="application/json")


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise InvalidRequest(f"The body is over {MAX_BODY_BYTES} bytes.", None)
    return bytes(body)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError):
        wanted = None
    if not isinstance(wanted, dict):
        raise InvalidRequest("We could not parse the JSON body of your request.", None)
    return wanted


def _reply_limit(wanted: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        limit = wanted.get(name)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidRequest(f"Invalid '{name}': expected an integer of at least 1.", name)
        return limit
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.model_server", description="An embedded model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000, help="default 9000; 0: any free one, see the log")
    parser.add_argument("--window", type=int, default=8000, metavar="TOKENS", help="context window (default 8000)")
    parser.add_argument("--flavour", choices=FLAVOURS, default=OPENAI.name, help="whose refusals (default openai)")
    parser.add_argument("--policy", choices=POLICIES, default="scripted", help="who thinks (default scripted)")
    options = parser.parse_args(arguments)
    app = create_model_server(options.window, FLAVOURS[options.flavour], POLICIES[options.policy])
    uvicorn.run(app, host=options.host, port=options.port)


if __name__ == "__main__":
    main()
