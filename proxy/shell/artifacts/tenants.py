"""The tenant of a request: a keyed hash of the API key that it carries. The key itself is never stored.

Rule: the secret stays in the data folder, so that a tenant is the same after a restart and for every worker; without a
folder for it, it lasts as long as the process, and the log says so. Replicas that share a store share the secret in it:
until a replica has it, it keeps and reads nothing there.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from proxy.shell.artifacts.folder import META, TROUBLE, ArtifactFolder, PrivateFolder, reason_of
from proxy.shell.resources.logs import logger
from proxy.shell.upstream.client import Headers

KEY_HEADERS: Final = frozenset((b"authorization", b"api-key", b"x-api-key"))
"""Headers in which clients send keys: OpenAI and most others, Azure, Anthropic-like relays."""
OWNER_FILE: Final = "owner-secret"
"""In the data folder."""
SECRET_KEY: Final = f"{META}/{OWNER_FILE}"
"""In a store at `artifacts.url`. Anyone who can read it can read the artifacts, too."""
_SECRET_BYTES: Final = 32


class Tenants:
    """Identifies tenants."""

    def __init__(
        self, secret: bytes, *, shared: bool = False, path: Path | None = None, store: ArtifactFolder | None = None
    ) -> None:
        self._secret = secret
        self._path = path
        """Of the file that holds the secret; None if none does."""
        self._store = store
        """Which holds the secret, as replicas share it."""
        self.problem: str | None = None
        """Why the secret in the store is not known yet."""
        self._shared = shared
        """One tenant for all requests."""

    @classmethod
    def of_folder(cls, folder: Path, *, shared: bool = False) -> Tenants:
        """With the secret of a data folder, created if there is none. A broken secret is not replaced: another worker
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
        """With the secret that all replicas of a store share; until that can be read, with the folder's own, and the
        store is left alone."""
        tenants = cls(cls.of_folder(folder, shared=shared)._secret, shared=shared, store=store)
        tenants.problem = "it was not asked for"
        tenants.agree()
        return tenants

    def keep_secret(self) -> None:
        """Called again and again. In a folder, write the secret again if somebody has removed its file: what is stored
        from now on must be readable after a restart; another secret in its place stays, and the next start will use it.
        A store that is left alone is asked whether it responds."""
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
        """Sixteen bytes that are the same for the same keys."""
        keys = b"" if self._shared else b"\n".join([value for name, value in headers if name in KEY_HEADERS])
        return hashlib.blake2b(keys, key=self._secret, digest_size=16).digest()

    @property
    def fleet(self) -> str | None:
        """The same for all processes that know the same secret, and different for all others; None: not known yet."""
        if self.problem is not None:
            return None
        return hashlib.blake2b(b"which secret", key=self._secret, digest_size=8).hexdigest()

    def needs_key(self, headers: Headers) -> bool:
        """Whether the request has no key although a key would make it another tenant's."""
        return not self._shared and not any(name in KEY_HEADERS for name, _ in headers)
