"""Processes of `tools.bench.http_clients cpu`: a raw ASGI route for each client, an upstream, and nginx as the floor.

Rule: separate processes, so that the measured CPU is the proxy's alone.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tools.bench.http_clients.clients import CLIENTS, Client


def route(name: str, base_url: str) -> Callable[..., Awaitable[None]]:
    """An ASGI application that forwards every request to `base_url` through the client of that name."""
    client: Client | None = None

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal client
        assert scope["type"] == "http"
        client = client or CLIENTS[name](base_url)
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        headers = [pair for pair in scope["headers"] if pair[0] not in (b"host", b"content-length", b"connection")]
        answer = await client.send(scope["method"], target, headers, body or None)
        kept = [pair for pair in answer.headers if pair[0] not in (b"connection", b"transfer-encoding")]
        await send({"type": "http.response.start", "status": answer.status, "headers": kept})
        async for chunk in answer.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await answer.aclose()

    return app


def serve(name: str, base_url: str) -> None:
    """The proxy's process: prints its port, then serves until it is ended."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        route(name, base_url), loop="uvloop", http="httptools", lifespan="off", access_log=False, log_level="warning"
    )
    uvicorn.Server(config).run(sockets=[listener])


EVENT = b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" token"}}]}' + b" " * 120 + b"\n\n"
EVENTS, EVENT_GAP_SECONDS = 200, 0.002


class _UpstreamConnection(asyncio.Protocol):
    """Just enough HTTP/1.1 for the requests of this module, so that the upstream uses little of the machine."""

    def __init__(self) -> None:
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from asyncio's

    def data_received(self, received: bytes) -> None:
        self._received += received
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
            if len(self._received) < end + 4 + length:
                return
            del self._received[: end + 4 + length]
            if head.split(b" ", 2)[1].endswith(b"/stream"):
                self._stream(EVENTS)
            else:
                body = b"x" * (200_000 if head.split(b" ", 2)[1].endswith(b"/large") else 2_000)
                fields = b"content-type: application/json\r\ncontent-length: %d" % len(body)
                self._transport.write(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n" + body)

    def _stream(self, left: int) -> None:
        if left == EVENTS:
            fields = b"content-type: text/event-stream\r\ntransfer-encoding: chunked"
            self._transport.write(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n")
        if left:
            self._transport.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
            asyncio.get_running_loop().call_later(EVENT_GAP_SECONDS, self._stream, left - 1)
        else:
            self._transport.write(b"0\r\n\r\n")


def serve_upstream(tls_folder: str) -> None:
    """The upstream's process: prints its two ports, plain and TLS, then serves until it is ended."""
    import uvloop

    async def run() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(Path(tls_folder) / "cert.pem", Path(tls_folder) / "key.pem")
        loop = asyncio.get_running_loop()
        plain = await loop.create_server(_UpstreamConnection, "127.0.0.1", 0)
        secure = await loop.create_server(_UpstreamConnection, "127.0.0.1", 0, ssl=context)
        print(plain.sockets[0].getsockname()[1], secure.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()

    uvloop.run(run())


def make_certificate(folder: Path) -> None:
    """A self-signed certificate for localhost, as `cert.pem` and `key.pem`."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    # rustls refuses a CA certificate as a server's own, so this one says that it is not a CA
    extra = ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command.split(), *names, *extra], cwd=folder, check=True, capture_output=True)


@contextmanager
def started(*command: str, **environment: str) -> Iterator[tuple[int, list[int]]]:
    """(process id, the ports that it printed); the process ends with the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    try:
        assert process.stdout is not None
        yield process.pid, [int(port) for port in process.stdout.readline().split()]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[tuple[int, list[int]]]:
    """nginx with one worker as a proxy with keep-alive and without buffering: (its worker's process id, [port])."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (folder / "nginx.conf").write_text(f"""
        daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{ }}
        http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
          fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
          client_max_body_size 0; client_body_buffer_size 4m; keepalive_requests 1000000;
          upstream up {{ server {upstream}; keepalive 64; keepalive_requests 1000000; }}
          server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://up; proxy_http_version 1.1;
            proxy_set_header Connection ""; proxy_buffering off; }} }} }}""")
    process = subprocess.Popen(["nginx", "-p", str(folder), "-c", "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (found := children.read_text().split()):
            time.sleep(0.05)
        yield int(found[0]), [port]
    finally:
        process.terminate()
        process.wait()
