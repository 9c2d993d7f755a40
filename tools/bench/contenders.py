"""The contenders: nginx as the floor, this project, this project switched off, and the installed peers.

A contender is a recipe, found by its executable; it writes its files into its own folder of the run. Nothing here
starts a process, except to ask nginx for its version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from tools.bench.bodies import WINDOWS

ROOT = Path(__file__).resolve().parents[2]

PEERS = Path(os.environ.get("BENCH_PEERS", Path.home() / ".cache" / "context-proxy-bench"))
"""Where `tools/bench/install_peers.sh` installs the other proxies; deliberately outside the project."""
PEER_NAMES = ("LiteLLM", "Portkey", "headroom")

DIRECT = "direct"
NGINX = "nginx"
NGINX_BUFFERED = "nginx-buffered"
OURS = "context-proxy"
OFF = "context-proxy-off"

_Command = Callable[[int, int, Path], list[str]]


@dataclass(frozen=True, slots=True)
class Contender:
    """How to run one proxy in front of the upstream."""

    name: str
    version: str
    command: _Command
    """Its port, the upstream's port and its own folder → the command line."""
    environment: dict[str, str] = field(default_factory=dict)
    headers: Callable[[int], dict[str, str]] = lambda _: {}
    """The upstream's port → request headers that this proxy requires."""
    verbatim: bool = True
    """It passes bodies on unchanged, both ways; checked on every response."""
    peer: bool = False
    """A foreign project: if it fails, its column says so and the bench continues."""
    cuts: bool = False
    """It makes requests fit; the others forward one that is over the window unchanged."""


def installed() -> list[Contender]:
    """Those that can run here, the floor first."""
    floor, buffered = _nginx(NGINX, _AS_IT_COMES), _nginx(NGINX_BUFFERED, "")
    possible = (floor, buffered, _ours(), _off(), _litellm(), _portkey(), _headroom())
    return [contender for contender in possible if contender]


def _nginx(name: str, buffering: str) -> Contender | None:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if program is None:
        return None
    reported = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr

    def command(port: int, upstream: int, folder: Path) -> list[str]:
        configuration = folder / "nginx.conf"
        facts = {"user": _nginx_user(), "port": port, "upstream": upstream, "buffering": buffering}
        configuration.write_text(_NGINX_CONF % facts)
        return [program, "-p", str(folder), "-c", str(configuration), "-e", str(folder / "error.log")]

    return Contender(name, reported.strip().rpartition("/")[2], command)


def _nginx_user() -> str:
    # Started by root, nginx runs its worker as `nobody`, which cannot enter the folder of this run.
    return "user root;" if os.geteuid() == 0 else ""


# A careful setup in front of a model: one worker, kept-alive upstream connections and no logs.
_NGINX_CONF = """\
daemon off;
%(user)s
worker_processes 1;
worker_rlimit_nofile 4096;
pid nginx.pid;
events { worker_connections 2048; }
http {
    access_log off;
    client_max_body_size 0;
    client_body_temp_path body;
    proxy_temp_path proxied;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
    upstream model { server 127.0.0.1:%(upstream)d; keepalive 64; keepalive_requests 1000000; }
    server {
        listen 127.0.0.1:%(port)d;
        location / {
            proxy_pass http://model;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            %(buffering)s
        }
    }
}
"""
# Both bodies passed on as they arrive: the floor. By nginx's own defaults a request body over 16 KB goes through a file
# and a response may, too: beating that would mean little, so it is listed but is not the reference.
_AS_IT_COMES = "client_body_buffer_size 64k; proxy_buffering off; proxy_request_buffering off;"


def _ours() -> Contender | None:
    program = Path(sys.executable).parent / "context-proxy"
    start = [str(program)] if program.exists() else [sys.executable, "-m", "proxy"]
    if not program.exists() and not (ROOT / "proxy" / "__main__.py").exists():
        return None
    from proxy import __version__

    def command(port: int, upstream: int, folder: Path) -> list[str]:
        where = ["--upstream", f"http://127.0.0.1:{upstream}/v1", "--host", "127.0.0.1", "--port", str(port)]
        # Stated explicitly: for an upstream that it does not know the catalogue's windows are guesses, which cut
        # nothing.
        stated = [{"match": model, "context_window": window} for model, window in WINDOWS.items()]
        config = folder / "config.yaml"
        config.write_text(json.dumps({"models": stated}))
        return [*start, "serve", *where, "--config", str(config), "--data-dir", str(folder / "kept")]

    return Contender(OURS, __version__, command, cuts=True)


def _off() -> Contender | None:
    """This server with forwarding only: the difference is the cost of planning."""
    ours = _ours()
    if ours is None:
        return None
    return Contender(OFF, ours.version, ours.command, environment={"CONTEXT_PROXY_ENABLED": "false"})


def with_workers(workers: int) -> Contender:
    """This project as several processes that share a port; where it is installed."""
    ours = _ours()
    assert ours is not None

    def command(port: int, upstream: int, folder: Path) -> list[str]:
        return [*ours.command(port, upstream, folder), "--workers", str(workers)]

    return replace(ours, name=f"{OURS}, {workers} workers", command=command)


def _litellm() -> Contender | None:
    program = _peer_program("litellm")
    if program is None:
        return None

    def command(port: int, upstream: int, folder: Path) -> list[str]:
        configuration = folder / "litellm.json"  # JSON is YAML
        target = {"model": "openai/*", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "sk-bench"}
        configuration.write_text(json.dumps({"model_list": [{"model_name": "*", "litellm_params": target}]}))
        return [program, "--config", str(configuration), "--host", "127.0.0.1", "--port", str(port)]

    quiet = {
        "LITELLM_MASTER_KEY": "sk-bench",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }
    return Contender(PEER_NAMES[0], _python_version(program, "litellm"), command, quiet, verbatim=False, peer=True)


def _portkey() -> Contender | None:
    package = PEERS / "portkey" / "node_modules" / "@portkey-ai" / "gateway"
    node = shutil.which("node")
    if node is None or not (package / "build" / "start-server.js").exists():
        return None

    def command(port: int, _: int, __: Path) -> list[str]:
        return [node, str(package / "build" / "start-server.js"), f"--port={port}", "--headless"]

    def headers(upstream: int) -> dict[str, str]:
        return {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1"}

    # It refuses hosts of the local network unless configured to trust them.
    trusting = {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
    version = json.loads((package / "package.json").read_text())["version"]
    return Contender(PEER_NAMES[1], version, command, trusting, headers, verbatim=False, peer=True)


def _headroom() -> Contender | None:
    program = _peer_program("headroom")
    if program is None:
        return None

    def command(port: int, upstream: int, folder: Path) -> list[str]:
        local = {"HOME": str(folder), "HEADROOM_TELEMETRY": "off", "HF_HUB_OFFLINE": "1"}
        set_local = [f"{name}={text}" for name, text in local.items()]
        where = ["--openai-api-url", f"http://127.0.0.1:{upstream}", "--host", "127.0.0.1", "--port", str(port)]
        return ["/usr/bin/env", *set_local, program, "proxy", *where, "--no-cache", "--no-rate-limit"]

    return Contender(PEER_NAMES[2], _python_version(program, "headroom-ai"), command, verbatim=False, peer=True)


def _peer_program(name: str) -> str | None:
    here = str(PEERS / name / "bin")
    return shutil.which(name, path=f"{here}{os.pathsep}{os.environ.get('PATH', '')}")


def _python_version(program: str, package: str) -> str:
    """The version of a package in another program's environment."""
    found = metadata.distributions(
        name=package, path=[str(p) for p in Path(program).parent.parent.glob("lib/*/site-packages")]
    )
    return next((distribution.version for distribution in found), "?")
