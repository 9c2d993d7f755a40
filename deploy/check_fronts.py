#!/usr/bin/env python3
"""Runs nginx and Caddy in front of a proxy, with the files in this folder, and says what held.

Rule: the files are used as they are but for ports, paths and certificates. What is not installed is passed over, and
nothing installed is a failure. Needs openssl for nginx's certificate.

    apt-get install nginx-light caddy
    .venv/bin/python deploy/check_fronts.py
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOKEN = "3f9c" * 8
KEY = "sk-of-the-upstream"
PATIENCE_SECONDS = 30
PAUSE_SECONDS = 0.3
"""Between two events of the upstream's stream."""
SEEN: list[str | None] = []
"""The keys that reached the upstream."""


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers every chat request with two events, a while apart, or with one body."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        SEEN.append(self.headers["authorization"])
        body = self.rfile.read(int(self.headers["content-length"]))
        if not json.loads(body).get("stream"):
            content = json.dumps({"choices": [{"message": {"role": "assistant", "content": body.decode()}}]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for word in ("first", "second"):
            event = {"choices": [{"index": 0, "delta": {"content": word}}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            time.sleep(PAUSE_SECONDS)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], port: int, environment: dict[str, str] | None = None) -> Iterator[None]:
    """A server that listens on a port for as long as the block lasts."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None or time.monotonic() > until:
                    output.seek(0)
                    raise SystemExit(f"{command[0]} does not listen:\n{output.read().decode()[-3000:]}")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def nginx(folder: Path, port: int, proxy_port: int) -> Iterator[None]:
    certificate = f"-subj /CN=localhost -days 1 -keyout {folder / 'key.pem'} -out {folder / 'chain.pem'}"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes {certificate}".split()
    subprocess.run(command, check=True, capture_output=True)
    (folder / "tokens").write_text(f'"Bearer {TOKEN}" 1;\n')
    site = (HERE / "nginx-tls.conf").read_text()
    site = site.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace(
        "127.0.0.1:8787", f"127.0.0.1:{proxy_port}"
    )
    site = site.replace("/etc/nginx/context-proxy-tokens", str(folder / "tokens"))
    site = re.sub(r"/etc/letsencrypt/live/\S+/fullchain.pem", str(folder / "chain.pem"), site)
    site = re.sub(r"/etc/letsencrypt/live/\S+/privkey.pem", str(folder / "key.pem"), site)
    scratch = "".join(
        f"{name}_temp_path {folder / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder / 'pid'}; error_log stderr; events {{}} http {{ access_log off; {scratch}\n{site}}}"
    )
    with running(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)], port):
        yield


@contextlib.contextmanager
def caddy(folder: Path, port: int, proxy_port: int) -> Iterator[None]:
    site = (HERE / "Caddyfile").read_text().replace("127.0.0.1:8787", f"127.0.0.1:{proxy_port}")
    options = f"admin off\nlocal_certs\nskip_install_trust\nauto_https disable_redirects\nhttps_port {port}\n"
    (folder / "Caddyfile").write_text(f"{{\n{options}}}\n{site}")
    environment = {"SITE": "localhost", "TOKEN": TOKEN, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with running(command, port, environment):
        yield


def asked(port: int, method: str, path: str, body: object = None, token: str | None = TOKEN) -> tuple[int, str]:
    """Status and body."""
    with contextlib.closing(sent(port, method, path, body, token)) as connection:
        response = connection.getresponse()
        return response.status, response.read().decode()


def sent(port: int, method: str, path: str, body: object, token: str | None) -> http.client.HTTPSConnection:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # certificates of this trial alone
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_SECONDS, context=context)
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token is not None else {})
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    return connection


def chat(content: str, **members: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Why does the build fail?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    tools = [{"type": "function", "function": {"name": "Bash", "parameters": {"type": "object", "properties": {}}}}]
    return {"model": "any", "messages": messages, "tools": tools, **members}


def check(port: int) -> Iterator[tuple[str, bool]]:
    """What is promised, and whether it held."""
    question = chat("ok")
    for name, token in (("no token", None), ("a wrong token", "x" * 64), ("an empty token", "")):
        status, body = asked(port, "POST", "/v1/chat/completions", question, token)
        yield (
            f"{name} is a 401 in OpenAI's shape",
            status == 401 and json.loads(body)["error"]["code"] == "unknown_token",
        )
    SEEN.clear()
    status, _ = asked(port, "POST", "/v1/chat/completions", question)
    yield "the right token is let in, and the upstream sees its own key", (status, SEEN) == (200, [f"Bearer {KEY}"])

    connection = sent(port, "POST", "/v1/chat/completions", chat("ok", stream=True), TOKEN)
    response = connection.getresponse()
    first, arrived = response.readline(), time.monotonic()
    rest, waited = response.read(), time.monotonic() - arrived
    yield "events of a stream arrive one by one", b"first" in first and b"second" in rest and waited > PAUSE_SECONDS
    connection.close()

    for path in ("/", "/decisions", "/metrics", "/dashboard/dashboard.js"):
        yield f"{path} stays inside", asked(port, "GET", path)[0] == 404
    yield "/explain stays inside", asked(port, "POST", "/explain", question)[0] == 404
    yield "/healthz answers", asked(port, "GET", "/healthz", token=None)[0] == 200

    log = "\n".join(f"{number} all fine in module {number % 9}" for number in range(60_000))
    status, body = asked(port, "POST", "/v1/chat/completions", chat(log))
    yield f"a body of {len(log):,} bytes passes, and is cut", status == 200 and len(body) < 100_000
    notice = re.search(rf"https://localhost:{port}(/artifacts/\w+\.txt)", body)
    yield "the notice names the address that agents know", notice is not None
    if notice is not None:
        page = asked(port, "GET", f"{notice[1]}?lines=5-6")
        yield (
            "what was cut is read with the token",
            page[0] == 200 and page[1].rstrip().endswith("5 all fine in module 5"),
        )
        yield "and not without", asked(port, "GET", notice[1], token=None)[0] == 401


FRONTS: dict[str, Callable[..., contextlib.AbstractContextManager[None]]] = {"nginx": nginx, "caddy": caddy}


def main() -> int:
    """0 when all that is installed held."""
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    installed = [name for name in FRONTS if shutil.which(name)]
    lost = 0
    for name in installed:
        port, proxy_port = free_port(), free_port()
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            folder.chmod(0o755)  # nginx's workers are another user when its master is root
            environment = {
                "OPENAI_API_KEY": KEY,
                "CONTEXT_PROXY_ARTIFACTS__PUBLIC_URL": f"https://localhost:{port}",
                "CONTEXT_PROXY_DATA_DIR": str(folder / "kept"),
                "CONTEXT_PROXY_SERVER__ADMIN_KEY": "k" * 32,
                "CONTEXT_PROXY_SERVER__HOST_NAMES": '["proxy.example"]',
                "CONTEXT_PROXY_SERVER__PORT": str(proxy_port),
                "UPSTREAM": f"http://127.0.0.1:{upstream.server_port}/v1",
            }
            with (
                running([sys.executable, "-m", "proxy", "serve"], proxy_port, environment),
                FRONTS[name](folder, port, proxy_port),
            ):
                for promise, held in check(port):
                    print(f"{name}: {'held' if held else 'LOST'}: {promise}")
                    lost += not held
    return 1 if lost or not installed else 0


if __name__ == "__main__":
    raise SystemExit(main())
