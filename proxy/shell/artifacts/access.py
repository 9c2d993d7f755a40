"""Where artifacts are kept, who a client is, and how it can read them: its tenant, a keyed hash of its API key, and the
paths and URLs that its connection and headers prove.

Rule: keys are never stored. The secret that keys the hash lives in the data folder, or in the store that replicas
share: until a replica has read it there, it keeps and reads nothing in that store. Client headers are believed only in
a strict form, as they end up in texts that models read, and only if a lie would harm no other client.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import ipaddress
import re
import secrets
import time
from pathlib import Path
from typing import Final

from starlette.types import Scope

from proxy.config import ArtifactSettings, Settings, fits_into_quotes
from proxy.core.notices import ArtifactAccess
from proxy.shell.artifacts.folder import (
    META,
    PROVISIONAL_BYTES,
    TENANT_BYTES,
    TRIAL_KEY,
    TROUBLE,
    ArtifactFolder,
    PrivateFolder,
    reason_of,
)
from proxy.shell.resources import UNFINISHED, logger, remove_unfinished
from proxy.shell.upstream import Headers

KEY_HEADERS: Final = frozenset((b"authorization", b"api-key", b"x-api-key"))
"""Headers in which clients send keys: OpenAI and most others, Azure, Anthropic-like relays."""
OWNER_FILE: Final = "owner-secret"
"""Name of the file in the data folder."""
SECRET_KEY: Final = f"{META}/{OWNER_FILE}"
"""Key of the secret in a store at `artifacts.url`. Anyone who can read it can also read the artifacts."""
_SECRET_BYTES: Final = 32


def create_folder(settings: Settings) -> ArtifactFolder:
    """Where the artifacts are kept; nothing is created or requested yet."""
    scheme, _, path = (settings.artifacts.url or "").partition("://")
    if scheme and scheme != "file":
        from proxy.shell.artifacts.bucket import Bucket  # noqa: PLC0415 - 4 MB that a local folder does not need

        return Bucket(settings.artifacts.url or "")
    return PrivateFolder(Path(path) if scheme else settings.artifacts.folder or settings.data_dir / "tool-output")


def unwritable(settings: Settings) -> str | None:
    """Why nothing can be kept in the local folder, found by a trial write; None if it can, or if artifacts go into a
    bucket."""
    folder = create_folder(settings)
    if not isinstance(folder, PrivateFolder):
        return None
    try:
        folder.put(TRIAL_KEY, b"ok\n")
    except TROUBLE as error:
        where = f"{folder.address} (data_dir, or artifacts.url for another place)"
        return f"nothing can be kept in {where}: {reason_of(error)}"
    return None


class Tenants:
    """Identifies tenants."""

    def __init__(
        self, secret: bytes, *, shared: bool = False, path: Path | None = None, store: ArtifactFolder | None = None
    ) -> None:
        self._secret = secret
        self._path = path
        """The file that holds the secret; None if none does."""
        self._store = store
        """Which holds the secret, as replicas share it."""
        self.problem: str | None = None
        """Why the secret in the store is not known yet."""
        self._shared = shared
        """One tenant for all requests."""

    @classmethod
    def of_folder(cls, folder: Path, *, shared: bool = False) -> Tenants:
        """Use the secret of a data folder, created if there is none. A broken secret is not replaced: another worker
        may have begun to use its own, and only a person can find out what happened."""
        path = folder / OWNER_FILE
        fresh = secrets.token_bytes(_SECRET_BYTES)
        try:
            found = PrivateFolder(folder).agreed(path.name, fresh)
            problem = None if len(found) == _SECRET_BYTES else f"it has {len(found)} bytes, not {_SECRET_BYTES}"
        except OSError as error:
            found, problem = b"", error.strerror
        if problem is None:
            return cls(found, shared=shared, path=path)
        logger().warning("owner_secret_not_kept", file=str(path), reason=problem)
        return cls(fresh, shared=shared)

    @classmethod
    def of_store(cls, store: ArtifactFolder, folder: Path, *, shared: bool = False) -> Tenants:
        """Use the secret that all replicas of a store share; until it can be read, use the folder's own and leave the
        store alone."""
        tenants = cls(cls.of_folder(folder, shared=shared)._secret, shared=shared, store=store)
        tenants.problem = "not looked up yet"
        tenants.agree()
        return tenants

    def keep_secret(self) -> None:
        """Called periodically. In a folder, restore the secret if its file was removed: what is stored from now on must
        be readable after a restart; another secret in its place stays, and the next start uses it. In a shared store,
        probe it during a cooldown."""
        if self._store is not None:
            is_gone = self._store.is_surely_there(SECRET_KEY, _SECRET_BYTES) is False
            if is_gone or self._store.cooldown.why is not None:
                self.agree()
            return
        if self._path is None or self._path.exists():
            return
        try:
            is_kept = PrivateFolder(self._path.parent).agreed(self._path.name, self._secret) == self._secret
            problem = None if is_kept else "another process has made its own"
        except OSError as error:
            problem = error.strerror
        if problem is not None:
            logger().warning("owner_secret_not_kept", file=str(self._path), reason=problem)
            self._path = None

    def agree(self) -> None:
        """Take the secret of the store, which is this one if it has none, and let the store be used. Blocks."""
        if self._store is None:
            return
        try:
            found = self._store.agreed(SECRET_KEY, self._secret)
            if self._store.cooldown.why is not None:
                self._store.try_writing()
            problem = None if len(found) == _SECRET_BYTES else f"it has {len(found)} bytes, not {_SECRET_BYTES}"
        except TROUBLE as error:
            found, problem = b"", reason_of(error)
        if problem is None:
            self._secret, self.problem = found, None
            self._store.cooldown.end()
        elif self.problem is None:
            self._store.cooldown.begin(problem)
        elif self.problem != problem:
            self.problem = problem
            self._store.cooldown.hold(f"the secret of tenants cannot be read: {problem}")
            logger().warning("owner_secret_not_kept", file=f"{self._store.address}/{SECRET_KEY}", reason=problem)

    def tenant_of(self, headers: Headers) -> bytes:
        """TENANT_BYTES that are the same for the same keys; PROVISIONAL_BYTES while the replicas' secret is unknown."""
        named = dict(headers)
        keys = [] if self._shared else list(map(named.__getitem__, KEY_HEADERS & named.keys()))
        if len(keys) > 1 or (len(named) < len(headers) and keys):  # hardly ever; in their order
            keys = [value for name, value in headers if name in KEY_HEADERS]
        size = TENANT_BYTES if self.problem is None else PROVISIONAL_BYTES
        return hashlib.blake2b(b"\n".join(keys), key=self._secret, digest_size=size).digest()

    @property
    def fleet(self) -> str | None:
        """A fingerprint of the secret; None if it is not known yet."""
        if self.problem is not None:
            return None
        return hashlib.blake2b(b"which secret", key=self._secret, digest_size=8).hexdigest()

    def needs_key(self, headers: Headers) -> bool:
        """Whether the request has no key although a key would make it another tenant's."""
        return not self._shared and not any(name in KEY_HEADERS for name, _ in headers)


def create_tenants(settings: Settings, folder: ArtifactFolder) -> Tenants:
    """The secret that distinguishes the owners of artifacts."""
    if settings.artifacts.url is None:
        return Tenants.of_folder(settings.data_dir, shared=settings.artifacts.shared)
    return Tenants.of_store(folder, settings.data_dir, shared=settings.artifacts.shared)


_HOST: Final = re.compile(
    rb"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[(?P<six>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?"
)
_OF_FRONTS: Final = frozenset(
    b"forwarded via x-real-ip x-client-ip true-client-ip x-cluster-client-ip fastly-client-ip fly-client-ip "
    b"x-original-forwarded-for x-original-host cdn-loop".split()
)
"""Headers of reverse proxies: the connection is theirs, and their client may be anywhere. No other client has a use
for them; a header sent by mistake costs a client on this machine a path or a page."""
_BEGIN_OF_FRONTS: Final = (b"x-forwarded-", b"x-envoy-", b"cf-")
"""Families of headers: nginx's, HAProxy's and Traefik's; Envoy's, and so Istio's; Cloudflare's."""

_CAME_THROUGH: Final = (b"forwarded", b"")
_HOST_BYTES: Final = 300
"""A longer value is no host; what is remembered is bounded."""
_KEYS: Final = {
    b"authorization": "Authorization: Bearer $OPENAI_API_KEY",
    b"api-key": "api-key: $AZURE_OPENAI_API_KEY",
    b"x-api-key": "x-api-key: $ANTHROPIC_API_KEY",
}
"""How an agent writes the header that carries its key, with the variable in which clients that send this header keep
it."""
_ANTHROPIC: Final = b"anthropic-version"
"""Sent with every request by Anthropic's clients, which have another variable for a bearer token:
https://code.claude.com/docs/en/env-vars"""
_ANTHROPIC_KEYS: Final = {**_KEYS, b"authorization": "Authorization: Bearer $ANTHROPIC_AUTH_TOKEN"}


class AccessResolver:
    """Finds the ways in which a client can read artifacts."""

    def __init__(self, settings: ArtifactSettings, folder: str | None) -> None:
        """`folder`: where the artifacts are on this machine; None: in a bucket."""
        self._settings = settings
        self._folder = folder if folder is not None and fits_into_quotes(folder) else None
        self._way = functools.lru_cache(1024)(self._build)

    def of(self, scope: Scope) -> ArtifactAccess:
        """The ways for the client of a request; 1.4 µs, as every request asks."""
        client, server = scope.get("client"), scope.get("server")
        headers: Headers = scope["headers"]
        named = dict(headers)
        host = named.get(b"host", b"")[:_HOST_BYTES]
        if len(named) < len(headers) and [name for name, _ in headers].count(b"host") > 1:
            host = b""
        keys = tuple(filter(named.__contains__, _KEYS))
        if len(keys) > 1:  # in the client's order, as its tenant depends on it
            keys = tuple(filter(_KEYS.__contains__, named))
        written = tuple(map((_ANTHROPIC_KEYS if _ANTHROPIC in named else _KEYS).__getitem__, keys))
        is_fronted = next(filter(_is_of_front, named), None) is not None
        scheme = scope.get("scheme", "http")
        return self._way(client and client[0], server and server[0], scheme, host, written, is_fronted)

    @property
    def here(self) -> ArtifactAccess:
        """The ways for an agent on this machine."""
        return self._built(True, None, "http", ())

    def _build(
        self,
        client: str | None,
        server: str | None,
        scheme: str,
        host: bytes,
        key_headers: tuple[str, ...],
        is_fronted: bool,
    ) -> ArtifactAccess:
        headers = [_CAME_THROUGH] if is_fronted else []
        seen: Scope = {"client": client and (client, 0), "server": server and (server, 0), "headers": headers}
        return self._built(is_on_this_machine(seen), host_of([(b"host", host)]), scheme, key_headers)

    def _built(self, is_here: bool, host: str | None, scheme: str, key_headers: tuple[str, ...]) -> ArtifactAccess:
        stated = self._settings
        folder = stated.agent_path or (self._folder if is_here else None)
        base = stated.public_url or (f"{scheme}://{host}" if host is not None else None)
        is_open = stated.shared or (stated.open_on_loopback and is_here)
        return ArtifactAccess(
            folder,
            None if base is None else base + "/artifacts",
            () if is_open else key_headers,
        )


def is_on_this_machine(scope: Scope) -> bool:
    """Whether the client runs on this host: its address is a loopback address, or the same one that it connected to."""
    client, server = scope.get("client"), scope.get("server")
    if not client or front_header(scope["headers"]) is not None:
        return False
    return is_loopback(client[0]) or (server is not None and client[0] == server[0])


def front_header(headers: Headers) -> bytes | None:
    """The first header that only a reverse proxy adds; None if there is none.

    >>> front_header([(b"host", b"a"), (b"x-forwarded-proto", b"https")]), front_header([(b"x-request-id", b"1")])
    (b'x-forwarded-proto', None)
    """
    return next(filter(_is_of_front, dict(headers)), None)


@functools.lru_cache(1024)
def _is_of_front(name: bytes) -> bool:
    return name in _OF_FRONTS or name.startswith(_BEGIN_OF_FRONTS)


@functools.lru_cache(1024)
def is_loopback(address: str) -> bool:
    """Whether this is the machine's address for itself.

    >>> is_loopback("127.0.0.9"), is_loopback("::1"), is_loopback("::ffff:127.0.0.1"), is_loopback("localhost")
    (True, True, True, False)
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def host_of(headers: Headers) -> str | None:
    """Host and port by which the client reached the proxy; None if it sent none, or none in a plain form.

    >>> host_of([(b"host", b"proxy:8787")]), host_of([(b"host", b"[::1]:80")]), host_of([(b"host", b"a'b")])
    ('proxy:8787', '[::1]:80', None)
    """
    hosts = [value for name, value in headers if name == b"host"]
    found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if found is None or int(found["port"] or 1) not in range(1, 65536):
        return None
    try:
        if found["six"]:
            ipaddress.IPv6Address(found["six"].decode())
    except ValueError:
        return None
    return found[0].decode()


LOOK_SECONDS: Final = 2.0
"""Between two checks that the secret exists; a check is one stat."""
UNFINISHED_SECONDS: Final = 60.0
"""A half-written file older than this was left by a killed worker: writing one takes milliseconds."""


async def look_after(folder: Path, tenants: Tenants) -> None:
    """Keep the secret in the folder, and remove what killed workers have left behind; runs for ever."""
    sweep_at = 0.0
    while True:
        if time.monotonic() >= sweep_at:
            sweep_at = time.monotonic() + UNFINISHED_SECONDS
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove_unfinished, folder, UNFINISHED, time.time() - UNFINISHED_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(tenants.keep_secret)
