"""An ordinary tool-using agent, which does the same work directly or with the proxy's base URL.

Rule: both runs get the same model server, tools and code; the agent knows a base URL and nothing else, and none of the
proxy's code reads its responses. It never shortens anything itself, and reads the proxy's response headers only to
report them. A wrong tool call never makes it fail: the result says what could not be done. Real files are read in one
folder only, where a shortened output may be stored whole. Servers run on real sockets and are stopped however the block
is left.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Final

import httpx
import uvicorn
from starlette.types import ASGIApp

from proxy.app import create_app
from proxy.config import Settings
from proxy.demo.incident import Incident, make_incident, next_reply
from proxy.demo.model_server import MODEL, create_model_server, prompt_tokens, tool_tokens

MAX_MATCHES: Final = 200


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools over an incident, and over files in `readable_folder`."""

    incident: Incident
    readable_folder: Path

    def run(self, name: str, arguments: str) -> str:
        """The result of a call; `arguments` is JSON, as the model wrote it."""
        try:
            return self._result(name, json.loads(arguments))
        except (ValueError, TypeError, KeyError) as wrong:
            return f"error: these arguments do not fit {name}: {type(wrong).__name__}"
        except OSError as failed:
            return f"error: {failed}"

    def _result(self, name: str, given: Mapping[str, str]) -> str:
        match name:
            case "list_files":
                return "\n".join(f"{len(text):8} {path}" for path, text in sorted(self.incident.files.items()))
            case "read_file":
                return _headed(given["path"], self._lines(given["path"]))
            case "grep":
                matches = [line for line in self._lines(given["path"]) if given["pattern"] in line]
                return _headed(f"{given['pattern']!r} in {given['path']}", matches[:MAX_MATCHES])
            case "run_tests":
                return _headed(f"tests of {given['service']}", self.incident.test_output[given["service"]].splitlines())
            case _:
                return f"error: there is no tool {name}"

    def _lines(self, path: str) -> list[str]:
        """Raises OSError."""
        if path in self.incident.files:
            return self.incident.files[path].splitlines()
        real = Path(path).resolve()
        if not real.is_relative_to(self.readable_folder.resolve()) or not real.is_file():
            raise FileNotFoundError(f"no such file: {path}")
        return real.read_text(errors="replace").splitlines()


def _headed(title: str, lines: list[str]) -> str:
    """The number of lines comes first, so that a reader knows if some are missing."""
    return "\n".join((f"# {title}: {len(lines)} lines", *lines))


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": meaning} for key, meaning in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters), "additionalProperties": False}
    function = {"name": name, "description": description, "parameters": schema, "strict": True}
    return {"type": "function", "function": function}


TOOLS: Final = (
    _tool("list_files", "All logs and sources, with their sizes in bytes."),
    _tool(
        "read_file", "The whole of a log, a source file, or a saved tool output.", path="as listed, or an absolute path"
    ),
    _tool("grep", "The lines of a file that hold a text.", pattern="plain text", path="as for read_file"),
    _tool("run_tests", "Runs the tests of a service; the output is long and is not kept.", service="its name"),
)
"""Sent with every request, in OpenAI's form."""


SYSTEM: Final = (
    "You investigate incidents. Use the tools; one step at a time. Tool outputs can be long: when one is shortened, it "
    "says where the whole is. Restate your notes in every message, and end with the answer in the form asked for."
)
TIMEOUT_SECONDS: Final = 60
"""Timeout of one response; the embedded model needs milliseconds."""


HEADERS: Final = {
    "authorization": "Bearer demo",
    "user-agent": "demo-agent",
    "x-context-proxy-session": "Why did the checkout fail?",
}
"""Its key and its names; a server that is no proxy ignores the last."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One response of the model, or the refusal that ended the run."""

    number: int
    steps: tuple[str, ...]
    """The tool calls in short: `read_file logs/cart.log`; empty for the last turn."""
    conversation_tokens: int
    """Size of the agent's request."""
    prompt_tokens: int
    """Tokens that reached the model, according to its `usage`; 0 if it refused."""
    attempts: int = 1
    """Sends to the model (`x-context-proxy-attempts`)."""
    refusal: str = ""
    """The error that ended the run: status, code and the server's words."""
    answer: str = ""
    """The model's last message."""


def investigate(
    base_url: str, task: str, toolbox: Toolbox, max_turns: int, report: Callable[[Turn], None]
) -> tuple[Turn, ...]:
    """Work on the task until the model answers without a tool call, an error ends it, or the turns are used up."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    turns: list[Turn] = []
    # No retries, so that each refusal is seen; no proxies of the environment between two local servers.
    with httpx.Client(base_url=base_url, headers=HEADERS, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        while len(turns) < max_turns and not (turns and (turns[-1].refusal or turns[-1].answer)):
            turn, message = _ask(client, messages, len(turns) + 1)
            turns.append(turn)
            report(turn)
            if message is not None:
                messages.append(message)
                messages += [
                    {
                        "role": "tool",
                        "tool_call_id": call["id"],
                        "content": toolbox.run(call["function"]["name"], call["function"]["arguments"]),
                    }
                    for call in message.get("tool_calls", ())
                ]
    return tuple(turns)


def _ask(client: httpx.Client, messages: list[dict[str, Any]], number: int) -> tuple[Turn, dict[str, Any] | None]:
    sent = prompt_tokens(messages) + tool_tokens(list(TOOLS))
    try:
        response = client.post("/chat/completions", json={"model": MODEL, "messages": messages, "tools": TOOLS})
    except httpx.HTTPError as failed:
        return Turn(number, (), sent, 0, refusal=f"{type(failed).__name__}: {failed}"), None
    body = response.json()
    if response.status_code != 200:
        error = body["error"]
        return Turn(number, (), sent, 0, refusal=f"{response.status_code} {error['code']}: {error['message']}"), None
    message: dict[str, Any] = body["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    turn = Turn(
        number,
        tuple(_step(call["name"], call["arguments"]) for call in calls),
        sent,
        body["usage"]["prompt_tokens"],
        attempts=int(response.headers.get("x-context-proxy-attempts", "1")),
        answer="" if calls else message["content"] or "(nothing)",
    )
    return turn, message


def _step(name: str, arguments: str) -> str:
    """A call in short.

    >>> _step("grep", '{"pattern": "trace=7f", "path": "/tmp/x/tool-output/tool_read_file_07.txt"}')
    'grep kept output'
    """
    given = json.loads(arguments)
    about = given.get("path") or given.get("service") or ""
    return f"{name} {'kept output' if PurePath(about).is_absolute() else about}".strip()


TURNS_BESIDE_HOPS: Final = 4
"""The start, the source, the tests, the answer; each of the other turns reads one service's log."""
PATIENCE: Final = 3
"""An agent gives up after this many times the turns that the work takes if everything is visible."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one run went."""

    turns: tuple[Turn, ...]
    expected: str
    """The right answer."""

    @property
    def refusal(self) -> str:
        """The error that ended it, or nothing."""
        return self.turns[-1].refusal

    @property
    def solved(self) -> bool:
        """Whether it ended with the right answer."""
        return self.turns[-1].answer.endswith(self.expected)


@dataclass(frozen=True, slots=True)
class Brief:
    """The parameters of the demo."""

    window_tokens: int
    turns: int
    """Turns that the work takes if everything is visible."""
    seed: int
    port: int
    """The proxy's; 0 for any free one."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Both runs."""

    brief: Brief
    direct: Run
    proxied: Run
    proxy_url: str
    """Its base URL, which ends in `/v1`."""


@contextmanager
def hold_contest(brief: Brief, report: Callable[[str, Turn], None]) -> Iterator[Contest]:
    """Start both servers and let the agent work twice; the servers run until the block ends. `report` gets "direct" or
    "proxy" and each turn. Raises CannotStart."""
    incident = make_incident(brief.turns - TURNS_BESIDE_HOPS, brief.seed)
    model = create_model_server(brief.window_tokens, partial(next_reply, incident))
    with (
        tempfile.TemporaryDirectory(prefix="context-proxy-demo-") as name,
        _serving("the model server", model) as model_url,
        proxy_in_front_of(model_url, brief.window_tokens, Path(name), brief.port) as proxy_url,
    ):
        toolbox = Toolbox(incident, Path(name))
        direct, proxied = (
            Run(
                investigate(url, incident.task, toolbox, PATIENCE * brief.turns, partial(report, side)), incident.answer
            )
            for side, url in (("direct", model_url), ("proxy", proxy_url))
        )
        yield Contest(brief, direct, proxied, proxy_url)


START_SECONDS: Final = 30
"""Longest wait for a server; the proxy starts in half a second, on a busy machine in ten times that."""
STOP_SECONDS: Final = 5
"""How long a server may take to end by itself."""
_HOST: Final = "127.0.0.1"


class CannotStart(Exception):
    """A server did not start; the text says which one, and why if that is known."""


@contextmanager
def _serving(name: str, app: ASGIApp, port: int = 0) -> Iterator[str]:
    """Serve an application on this port, 0 for any free one, on a thread; yields its base URL. Raises CannotStart."""
    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        raise CannotStart(f"{name} cannot listen on port {port}: {error.strerror}") from None
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while thread.is_alive() and not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        if not server.started:
            raise CannotStart(f"{name} did not start")
        yield f"http://{_HOST}:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
        listener.close()


def proxy_in_front_of(upstream: str, window_tokens: int, folder: Path, port: int = 0) -> AbstractContextManager[str]:
    """Serve the proxy for `upstream`, without any settings of the user, its files in `folder`; yields its base URL.
    Raises CannotStart."""
    settings = Settings.model_validate(
        {
            "upstream": {"base_url": upstream},
            "defaults": {"context_window": window_tokens},
            "data_dir": folder / "kept",
            "log": {"level": "error"},
        }
    )
    return _serving("the proxy", create_app(settings), port)
