"""The tenant of a request: a keyed hash of the API key that it carries. The key itself is never stored.

Rule: the secret stays in the data folder, so that a tenant is the same after a restart and for every worker; without a
folder for it, it lasts as long as the process, and the log says so. The replicas of a bucket share the secret in it:
until a replica has it, it keeps and reads nothing there.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.shell.artifacts.folder import META, TROUBLE, reason_of
from proxy.shell.resources.logs import logger
from proxy.shell.resources.whole_files import create_file
from proxy.shell.upstream.client import Headers

if TYPE_CHECKING:
    from proxy.shell.artifacts.bucket import Bucket

KEY_HEADERS: Final = frozenset((b"authorization", b"api-key", b"x-api-key"))
"""Headers in which clients send keys: OpenAI and most others, Azure, Anthropic-like relays."""
SECRET_KEY: Final = f"{META}/owner-secret"
"""In a bucket. Anyone who can read it can read the artifacts, too."""
_SECRET_BYTES: Final = 32


class Tenants:
    """Identifies tenants."""

    def __init__(
        self, secret: bytes, *, shared: bool = False, path: Path | None = None, bucket: Bucket | None = None
    ) -> None:
        self._secret = secret
        self._path = path
        """Of the file that holds the secret; None if none does."""
        self._bucket = bucket
        """Which holds the secret."""
        self.problem: str | None = None
        """Why the secret of the bucket is not known yet."""
        self._shared = shared
        """One tenant for all requests."""

    @classmethod
    def of_folder(cls, folder: Path, *, shared: bool = False) -> Tenants:
        """With the secret of a data folder, created if there is none. A broken secret is not replaced: another worker
        may have begun to use its own, and only a person can find out what happened."""
        path = folder / "owner-secret"
        fresh = secrets.token_bytes(_SECRET_BYTES)
        try:
            found = _agreed(path, fresh)
            problem = None if len(found) == _SECRET_BYTES else f"it has {len(found)} bytes, not {_SECRET_BYTES}"
        except OSError as error:
            found, problem = b"", error.strerror
        if problem is None:
            return cls(found, shared=shared, path=path)
        logger().warning("owner_secret_not_kept", file=str(path), reason=problem)
        return cls(fresh, shared=shared)

    @classmethod
    def of_bucket(cls, bucket: Bucket, folder: Path, *, shared: bool = False) -> Tenants:
        """With the secret that all replicas of a bucket share; until that can be read, with the folder's own, and the
        bucket is left alone."""
        tenants = cls(cls.of_folder(folder, shared=shared)._secret, shared=shared, bucket=bucket)
        tenants.problem = "it was not asked for"
        tenants.agree()
        return tenants

    def keep_secret(self) -> None:
        """Called again and again. In a folder, write the secret again if somebody has removed its file: what is stored
        from now on must be readable after a restart; another secret in its place stays, and the next start will use it.
        A bucket that is left alone is asked whether it responds."""
        if self._bucket is not None:
            if self._bucket.cooldown.why is not None:
                self.agree()
            return
        if self._path is None or self._path.exists():
            return
        try:
            is_kept = _agreed(self._path, self._secret) == self._secret
            problem = None if is_kept else "another process has made its own"
        except OSError as error:
            problem = error.strerror
        if problem is not None:
            logger().warning("owner_secret_not_kept", file=str(self._path), reason=problem)
            self._path = None

    def agree(self) -> None:
        """Take the secret of the bucket, which is this one if it has none, and let the bucket be used. Blocks."""
        if self._bucket is None:
            return
        try:
            found = self._bucket.agreed(SECRET_KEY, self._secret)
            if self._bucket.cooldown.why is not None:
                self._bucket.try_writing()
            problem = None if len(found) == _SECRET_BYTES else f"it has {len(found)} bytes, not {_SECRET_BYTES}"
        except TROUBLE as error:
            found, problem = b"", reason_of(error)
        if problem is None:
            self._secret, self.problem = found, None
            self._bucket.cooldown.end()
        elif self.problem is None:
            self._bucket.cooldown.begin(problem)
        elif self.problem != problem:
            self.problem = problem
            self._bucket.cooldown.hold(f"the secret of tenants cannot be read: {problem}")
            logger().warning("owner_secret_not_kept", file=f"{self._bucket.address}/{SECRET_KEY}", reason=problem)

    def tenant_of(self, headers: Headers) -> bytes:
        """Sixteen bytes that are the same for the same keys."""
        keys = b"" if self._shared else b"\n".join(value for name, value in headers if name in KEY_HEADERS)
        return hashlib.blake2b(keys, key=self._secret, digest_size=16).digest()

    @property
    def circle(self) -> str | None:
        """The same for all processes that know the same secret, and different for all others; None: not known yet."""
        if self.problem is not None:
            return None
        return hashlib.blake2b(b"which secret", key=self._secret, digest_size=8).hexdigest()

    def needs_key(self, headers: Headers) -> bool:
        """Whether the request has no key although a key would make it another tenant's."""
        return not self._shared and not any(name in KEY_HEADERS for name, _ in headers)


def _agreed(path: Path, fresh: bytes) -> bytes:
    """The content of the file, which becomes `fresh` if there was none. Raises OSError.

    If several workers start at once, one of them wins, and none reads half a secret.
    """
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        create_file(path, fresh)
    return path.read_bytes()
