"""A tool-using agent as people write them: openai-python, a loop, streamed answers.

Rule: it knows a base URL and nothing else. It never shortens anything itself, and looks at the proxy's response headers
only to report them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import httpx
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ParsedChatCompletion

from proxy.demo import counting
from proxy.demo.toolbox import TOOLS, Toolbox

SYSTEM: Final = (
    "You investigate incidents. Use the tools; one step at a time. Tool outputs can be long: when one is shortened, it "
    "says where the whole is. Restate your notes in every message, and end with the answer in the form asked for."
)
TIMEOUT_SECONDS: Final = 60
"""For one answer; the embedded model needs milliseconds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model, or the refusal that ended the run."""

    number: int
    steps: tuple[str, ...]
    """The tool calls in short: `read_file logs/cart.log`; of the last turn, nothing."""
    conversation_tokens: int
    """What the agent sent."""
    prompt_tokens: int
    """What reached the model, as its `usage` says; 0 when it refused."""
    edits: str = ""
    """The proxy's account of this request (`x-context-proxy-edits`), or nothing."""
    attempts: int = 1
    """How often the proxy asked the model (`x-context-proxy-attempts`)."""
    refusal: str = ""
    """The error that ended the run: status, code and the server's words."""
    answer: str = ""
    """What the model said last."""


def investigate(
    base_url: str, task: str, toolbox: Toolbox, max_turns: int, report: Callable[[Turn], None]
) -> tuple[Turn, ...]:
    """Work on the task until the model answers without a tool call, an error ends it, or the turns are used up."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    turns: list[Turn] = []
    with _client(base_url) as client:
        while len(turns) < max_turns and not (turns and (turns[-1].refusal or turns[-1].answer)):
            turn, said = _ask(client, messages, len(turns) + 1)
            turns.append(turn)
            report(turn)
            if said is not None:
                messages.append(said)
                messages += [
                    {
                        "role": "tool",
                        "tool_call_id": call["id"],
                        "content": toolbox.run(call["function"]["name"], call["function"]["arguments"]),
                    }
                    for call in said.get("tool_calls", ())
                ]
    return tuple(turns)


def _client(base_url: str) -> openai.OpenAI:
    """No retries, so that each refusal is seen; no proxies of the environment between two local servers."""
    http_client = openai.DefaultHttpxClient(trust_env=False)
    return openai.OpenAI(
        base_url=base_url, api_key="demo", max_retries=0, timeout=TIMEOUT_SECONDS, http_client=http_client
    )


def _ask(client: openai.OpenAI, messages: list[dict[str, Any]], number: int) -> tuple[Turn, dict[str, Any] | None]:
    sent = counting.prompt_tokens(messages) + counting.tool_tokens(list(TOOLS))
    request: dict[str, Any] = {
        "model": "embedded-model",
        "messages": messages,
        "tools": TOOLS,
        "stream_options": {"include_usage": True},
    }
    try:
        completion, headers = _streamed(client, request)
    except (openai.APIError, httpx.HTTPError) as refused:
        return Turn(number, (), sent, 0, refusal=_in_short(refused)), None
    spoken = completion.choices[0].message
    said: dict[str, Any] = {"role": "assistant", "content": spoken.content}
    calls = [{"name": call.function.name, "arguments": call.function.arguments} for call in spoken.tool_calls or ()]
    if spoken.tool_calls:
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(spoken.tool_calls, calls, strict=True)
        ]
    turn = Turn(
        number,
        tuple(_step(call["name"], call["arguments"]) for call in calls),
        sent,
        completion.usage.prompt_tokens if completion.usage else 0,
        edits=headers.get("x-context-proxy-edits", ""),
        attempts=int(headers.get("x-context-proxy-attempts", "1")),
        answer="" if calls else spoken.content or "(nothing)",
    )
    return turn, said


def _streamed(
    client: openai.OpenAI, request: Mapping[str, Any]
) -> tuple[ParsedChatCompletion[None], Mapping[str, str]]:
    """The streamed answer, put together, and the head it came with."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState(input_tools=request["tools"])
    with client.chat.completions.create(stream=True, **request) as stream:
        for chunk in stream:
            state.handle_chunk(chunk)
    return state.get_final_completion(), stream.response.headers


def _in_short(refused: Exception) -> str:
    """Status, code and the server's words.

    >>> _in_short(httpx.ReadError("broken"))
    'ReadError: broken'
    """
    if not isinstance(refused, openai.APIStatusError):
        return f"{type(refused).__name__}: {refused}"
    body = refused.body if isinstance(refused.body, dict) else {}
    code = body.get("code")
    return (
        f"{refused.status_code}{f' {code}' if isinstance(code, str) else ''}: {body.get('message') or refused.message}"
    )


def _step(name: str, arguments: str) -> str:
    """A call in short.

    >>> _step("grep", '{"pattern": "trace=7f", "path": "/tmp/x/tool-output/tool_read_file_07.txt"}')
    'grep kept output'
    """
    try:
        given = json.loads(arguments)
    except ValueError:
        return name
    about = str(given.get("path") or given.get("service") or "") if isinstance(given, dict) else ""
    return f"{name} {'kept output' if PurePath(about).is_absolute() else about}".strip()
