"""Conversations of chat completions as the Responses API has them, and back: what is measured on one wire can be
measured on the other. `python -m support.chat_as_responses --port P --upstream URL COMMAND…` runs before and behind
a proxy: chat in, the Responses API through the proxy that COMMAND starts, chat out.

Rule: translated there and back, a conversation is the same.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


def request_as_responses(body: Mapping[str, Any]) -> Json:
    """A chat request, in the order in which clients write it."""
    made: Json = {"model": body.get("model"), "input": items_of(body["messages"]), "store": False}
    if body.get("tools"):
        made["tools"] = [{"type": "function", **tool["function"]} for tool in body["tools"]]
    return made


def request_as_chat(body: Mapping[str, Any]) -> Json:
    made: Json = {"model": body.get("model"), "messages": messages_of(body["input"])}
    if body.get("tools"):
        tools = ({name: value for name, value in tool.items() if name != "type"} for tool in body["tools"])
        made["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return made


def items_of(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    for number, message in enumerate(messages):
        content = message.get("content")
        if message["role"] == "tool":
            output = _parts(content, "input_text")
            found.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": output})
        elif message["role"] != "assistant":
            found.append({"role": message["role"], "content": _parts(content, "input_text")})
        else:
            found += _said(number, message)
    return found


def _said(number: int, message: Mapping[str, Any]) -> list[Json]:
    found: list[Json] = []
    if thought := message.get("reasoning_content"):
        content = [{"type": "reasoning_text", "text": thought}]
        found.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": content})
    if message.get("content"):
        content = _parts(message["content"], "output_text")
        content = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        found.append({"type": "message", "role": "assistant", "content": content})
    calls = message.get("tool_calls") or ()
    found += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
    return found or [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}]


def _parts(content: Any, kind: str) -> Any:
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": kind, "text": part["text"]} if "text" in part else {"type": "input_image", **part["image_url"]}
        for part in content
    ]


def messages_of(items: Sequence[Mapping[str, Any]]) -> list[Json]:
    found: list[Json] = []
    is_open = False
    for item in items:
        kind = item.get("type", "message")
        is_own = kind in ("reasoning", "function_call") or item.get("role") == "assistant"
        if is_own and (not is_open or (kind != "function_call" and "tool_calls" in found[-1])):
            found.append({"role": "assistant", "content": None})
        is_open = is_own
        match kind:
            case "reasoning":
                found[-1]["reasoning_content"] = item["content"][0]["text"]
            case "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                found[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                found.append({"role": "tool", "tool_call_id": item["call_id"], "content": _back(item["output"])})
            case _ if is_own:
                found[-1]["content"] = "".join(part["text"] for part in item["content"])
            case _:
                found.append({"role": item["role"], "content": _back(item["content"])})
    return found


def _back(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": part["text"]}
        if "text" in part
        else {"type": "image_url", "image_url": {"url": part["image_url"]}}
        for part in content
    ]


def reply_as_responses(reply: Mapping[str, Any]) -> Json:
    message, usage = reply["choices"][0]["message"], reply.get("usage") or {}
    reported = {"input_tokens": usage.get("prompt_tokens"), "output_tokens": usage.get("completion_tokens")}
    made = {"id": "resp_1", "object": "response", "status": "completed", "output": items_of([message])}
    return {**made, "usage": {**reported, "total_tokens": usage.get("total_tokens")}}


def reply_as_chat(reply: Mapping[str, Any]) -> Json:
    choice = {"index": 0, "message": messages_of(reply["output"])[0], "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "choices": [choice]}


def _serving(port: int, url: str, there: Callable[[Any], Any], back: Callable[[Any], Any]) -> ThreadingHTTPServer:
    """Takes requests, sends each `there` on to a URL, and the reply `back`; errors as they are."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, b'{"object": "list", "data": []}')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {"content-type": "application/json", "authorization": self.headers.get("authorization", "")}
            sent = urllib.request.Request(url, json.dumps(there(body)).encode(), headers)
            try:
                with urllib.request.urlopen(sent, timeout=120) as answer:
                    self._answer(answer.status, json.dumps(back(json.load(answer))).encode())
            except urllib.error.HTTPError as refusal:
                self._answer(refusal.code, refusal.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def stand_around(
    path: str,
    requests: tuple[Callable[[Any], Any], Callable[[Any], Any]],
    replies: tuple[Callable[[Any], Any], Callable[[Any], Any]],
) -> None:
    """Start the proxy that the command line names, before and behind it translators. `path`: of its API; `requests`,
    `replies`: there and back."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True, help="where chat comes in")
    parser.add_argument("--upstream", required=True, help="where chat goes")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="of a proxy, with {upstream} and {port}")
    given = parser.parse_args()
    behind, inside = _free_port(), _free_port()
    _serving(behind, f"{given.upstream}/chat/completions", requests[1], replies[0])
    upstream = f"http://127.0.0.1:{behind}/v1"
    command = [word.replace("{upstream}", upstream).replace("{port}", str(inside)) for word in given.command]
    proxy = subprocess.Popen([word for word in command if word != "--"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(proxy.terminate()))
    while True:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", inside)) == 0:
                break
        time.sleep(0.1)
    _serving(given.port, f"http://127.0.0.1:{inside}{path}", requests[0], replies[1])
    sys.exit(proxy.wait())


if __name__ == "__main__":
    stand_around("/v1/responses", (request_as_responses, request_as_chat), (reply_as_responses, reply_as_chat))
