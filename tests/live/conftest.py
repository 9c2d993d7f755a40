"""Proxies on real sockets, and clients that write and read bytes."""

import asyncio
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.live_proxy import running
from support.upstream.sockets import OK, Request, SocketServer, answering
from support.waiting import PATIENCE_SECONDS

from tools.ports import held_port


@pytest.fixture(scope="package")
def proxy(tmp_path_factory):
    """One proxy for all tests here that leave it as they found it; it ends before those of other folders begin, as it
    takes 55 MB."""
    with running(
        tmp_path_factory.mktemp("proxy"),
        SERVER__MAX_BODY_BYTES="1000000",
        UPSTREAM__API_KEY="sk-configured-canary",
        LOG__LEVEL="debug",
    ) as found:
        yield found


@pytest.fixture
def start(tmp_path):
    """Starts a proxy with flags and settings of the test's own, in a folder of its own; several may start at once."""
    with contextlib.ExitStack() as stack:
        numbers = itertools.count()
        yield lambda *flags, **settings: stack.enter_context(
            running(tmp_path / f"proxy-{next(numbers)}", *flags, **settings)
        )


@pytest.fixture
def port():
    """For a server that begins to listen after its clients know where."""
    with held_port() as found:
        yield found


class Client:
    """A client that writes and reads bytes."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def ask(self, line, body=None, *headers):
        """Write a request; a body brings its length."""
        lines = [f"{line} HTTP/1.1", "host: localhost", *headers]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))

    async def head(self):
        """Status and headers of an answer."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
        line, *rest = head[:-4].split(b"\r\n")
        pairs = [header.split(b": ", 1) for header in rest]
        return int(line.split(b" ")[1]), [(name.lower(), value) for name, value in pairs]

    async def chunk(self):
        """One chunk of a chunked body; empty at its end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def answer(self):
        """A whole answer. Raises IncompleteReadError when it breaks off."""
        status, pairs = await self.head()
        headers, body = dict(pairs), b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            if headers.get(b"transfer-encoding") == b"chunked":
                while piece := await self.chunk():
                    body += piece
            else:
                body = await self.reader.readexactly(int(headers.get(b"content-length", b"0")))
        return status, headers, body


@contextlib.asynccontextmanager
async def connected(proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=1 << 22)
    try:
        yield Client(reader, writer)
    finally:
        if writer.transport.get_write_buffer_size():
            writer.transport.abort()  # no one reads the rest, and closing waits for that
        writer.close()
        await asyncio.sleep(0)  # in which the transport closes its socket


@pytest.fixture
async def client(proxy):
    async with connected(proxy) as found:
        yield found


@pytest.fixture
def connect():
    """For more than one client, or another proxy."""
    return connected


@pytest.fixture
async def seen(proxy):
    """What comes to an upstream that answers everything with OK."""
    found: list[Request] = []
    async with SocketServer(answering(OK, seen=found), proxy.upstream_port):
        yield found


NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node():
    """Runs a script with the npm package `openai`, which is kept between runs in the user's cache; what it prints."""
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        pytest.skip("node or npm is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "context-proxy-tests" / "node"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="context-proxy-node-"))
    for name in ("package.json", "client.mjs", "reading.mjs"):
        shutil.copy(NODE / name, folder)

    def run(*command):
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS)

    def printed(*words):
        ran = run("node", *words)
        assert ran.stderr == ""
        return ran.stdout

    if not (folder / "node_modules" / "openai").exists():
        installed = run(npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        if installed.returncode:
            pytest.skip(f"npm cannot install the package openai: {installed.stderr.strip()[-200:]}")
    return printed
