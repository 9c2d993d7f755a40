"""A small model server: OpenAI's chat API over a policy, with a real token count, a window and real refusals.

Rule: it treats every client alike and keeps nothing between requests. Alone: `python -m proxy.demo.model_server`.
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

from proxy.demo import counting
from proxy.demo.chat import Policy
from proxy.demo.completions import CREATED, Completion
from proxy.demo.detective import detective
from proxy.demo.refusals import FLAVOURS, OPENAI, Flavour, Load
from proxy.demo.scripted import scripted
from proxy.demo.validity import InvalidRequest, check_messages

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
            counting.prompt_tokens(messages),
            counting.tool_tokens(wanted.get("tools")),
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
