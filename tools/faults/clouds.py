"""Servers of each cloud's storage API behind a relay that makes the trouble.

Rule: the servers answer as they always do; only the relay hangs, breaks off, refuses or lies.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import obstore
from obstore.store import from_url

from tools.faults.stage import PATIENCE_SECONDS, SOURCE, whole

LATE_SECONDS: Final = 1.0
_EXPIRED: Final = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


@dataclass(frozen=True)
class Service:
    """A local server of a cloud's API, and the settings with which the proxies find its bucket."""

    cloud: str
    command: tuple[str, ...]
    """Prints its address first."""
    url: str
    environment: Callable[[str], Mapping[str, str]]
    """Address → environment of the proxies."""
    request: Callable[[str], bytes]
    """Makes the bucket or removes it, as the method says."""


def _google_account(address: str) -> Mapping[str, str]:
    account = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**account, "gcs_base_url": address})}


def _plain(method: str) -> bytes:
    return f"{method} /faults HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode()


def _signed(method: str) -> bytes:
    """Signed for Azure: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key"""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    lines = [method, *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    lines += [f"/{_ACCOUNT}/{_ACCOUNT}/faults", "restype:container"]
    seal = hmac.digest(base64.b64decode(_PUBLISHED_KEY), "\n".join(lines).encode(), hashlib.sha256)
    headers |= {"host": "x", "content-length": "0"}
    headers["authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(seal).decode()}"
    head = [f"{method} /{_ACCOUNT}/faults?restype=container HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join([*head, "", ""]).encode()


_ACCOUNT: Final = "devstoreaccount1"
_PUBLISHED_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Key of azurite's only account: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite"""
_PORT: Final = re.compile(rb"http://127\.0\.0\.1:(\d+)")
_MOTO: Final = (sys.executable, str(SOURCE / "tests" / "support" / "moto_server.py"))
S3: Final = Service(
    "S3",
    (*_MOTO, "s3"),
    "s3://faults/kept",
    lambda address: {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    },
    _plain,
)
GOOGLE: Final = Service("Google Cloud Storage", (*_MOTO, "google"), "gs://faults/kept", _google_account, _plain)

AZURITE: Final = shutil.which("azurite-blob")
AZURE: Final = Service(
    "Azure",
    (
        *(str(AZURITE), "--blobHost", "127.0.0.1", "--blobPort", "0"),
        *("--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"),
    ),
    "az://faults/kept",
    lambda address: {
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _PUBLISHED_KEY,
        "AZURE_STORAGE_ENDPOINT": f"{address}/{_ACCOUNT}",
    },
    _signed,
)


@dataclass
class Bucket:
    """A server of a cloud's API behind a relay that makes the trouble."""

    service: Service
    port: int
    relay: asyncio.Server | None = None
    place: int = 0
    """The relay's port."""
    trouble: str = ""
    """`hang`, `late`, `cut` (connections end without a response), `away` (there are none), `garbage` (a 200 that is no
    response of such a server), `truncated` (half of each response), `expired` (credentials), or a status; empty: none.
    """
    connections: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = field(default_factory=dict)
    """Each with the task that serves it, which asyncio itself does not keep from being collected."""

    async def begin(self, trouble: str) -> None:
        """Make trouble, also for connections that were idle; empty: end it."""
        self.trouble = trouble
        for writer in [*self.connections]:
            writer.close()
        if self.relay is not None:
            self.relay.close()
            self.relay = None
        if trouble != "away":
            self.relay = await asyncio.start_server(self.serve, "127.0.0.1", self.place, limit=256 * 1024 * 1024)
            self.place = self.relay.sockets[0].getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections[writer] = asyncio.current_task()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while self.trouble != "cut":
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                request = head + await reader.readexactly(int(length[1]) if length else 0)
                while self.trouble == "hang":
                    await asyncio.sleep(0.1)
                if self.trouble == "late":
                    await asyncio.sleep(LATE_SECONDS)
                writer.write(await self._response(request))
                await writer.drain()
                if self.trouble == "truncated":
                    break
        self.connections.pop(writer, None)
        writer.close()

    async def _response(self, request: bytes) -> bytes:
        match self.trouble:
            case "garbage":
                return whole(200, b"\x00\xff<Garbage" * 99, "application/xml")
            case "expired":
                return whole(403, _EXPIRED, "application/xml")
            case "truncated":
                found = await self._passed(request)
                return found[: -max(1, len(found.partition(b"\r\n\r\n")[2]) // 2)]
            case trouble if trouble.isdigit():
                return whole(int(trouble), b"")
        return await self._passed(request)

    async def deleted(self) -> None:
        """Remove the bucket itself."""
        await self.emptied()
        await self._passed(self.service.request("DELETE"))

    async def made(self) -> None:
        """Make it, past the relay."""
        answer = await self._passed(self.service.request("PUT"))
        assert answer.split(b" ", 2)[1] in (b"200", b"201"), answer

    async def emptied(self) -> int:
        """Remove everything; how many objects there were."""
        root = self.service.url.rpartition("/")[0]
        store = from_url(root, client_options={"allow_http": True})
        pages = await asyncio.to_thread(lambda: list(obstore.list(store)))  # the relay runs on this loop
        found = [one["path"] for page in pages for one in page]
        await obstore.delete_async(store, found)
        return len(found)

    async def _passed(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        answer = await reader.read()
        writer.close()
        return answer.replace(b"Connection: close\r\n", b"", 1)


@contextlib.asynccontextmanager
async def bucket(service: Service = S3) -> AsyncIterator[Bucket]:
    """An empty one, which the proxies of this trial find by their environment."""
    process = await asyncio.create_subprocess_exec(
        *service.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    kept = Bucket(service, await _port_said_by(process))
    await kept.begin("")
    environment = service.environment(f"http://127.0.0.1:{kept.place}")
    os.environ.update(environment)
    try:
        await kept.made()
        yield kept
    finally:
        for name in environment:
            del os.environ[name]
        await kept.begin("away")
        process.kill()
        await process.wait()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while kept.connections:  # the loop may end next, and would complain about them
                await asyncio.sleep(0.01)


async def _port_said_by(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for line in process.stdout:
            if (found := _PORT.search(line)) is not None:
                return int(found[1])
    raise RuntimeError("the server does not start")
