"""Who a client is: its tenant, a keyed hash of its API key.

Rule: API keys are never stored. The secret that keys the hash is `server.secret`, which replicas share, or a file in
the data folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from proxy.config import SECRET_BYTES, Settings, SettingsError
from proxy.shell.artifacts.folder import META, TENANT_BYTES, TROUBLE, ArtifactFolder, reason_of
from proxy.shell.artifacts.places import create_folder
from proxy.shell.resources import UNFINISHED, create_file, logger, remove_unfinished
from proxy.shell.upstream import Headers

KEY_HEADERS: Final = frozenset((b"authorization", b"api-key", b"x-api-key"))
"""Headers in which clients send keys: OpenAI and most others, Azure, Anthropic-like relays."""
OWNER_FILE: Final = "owner-secret"
"""Name of the file in the data folder."""
SECRET_KEY: Final = f"{META}/{OWNER_FILE}"
"""Where 0.2 kept the secret in a store at `artifacts.url`."""
_MISSING: Final = (
    "server.secret: must be set with artifacts.url or state.url, to the same 64 hexadecimal digits on all replicas; "
    "`openssl rand -hex 32` prints some"
)


class Tenants:
    """Identifies tenants."""

    def __init__(self, secret: bytes, *, shared: bool = False, path: Path | None = None) -> None:
        self._secret = secret
        self._path = path
        """The file that holds the secret; None if none does."""
        self._shared = shared
        """One tenant for all requests."""

    @classmethod
    def of_folder(cls, folder: Path, *, shared: bool = False) -> Tenants:
        """Use the secret of a data folder, created if there is none. A broken secret is not replaced: another worker
        may have begun to use its own, and only a person can find out what happened."""
        path, fresh = folder / OWNER_FILE, secrets.token_bytes(SECRET_BYTES)
        try:
            found = _agreed(path, fresh)
            problem = None if len(found) == SECRET_BYTES else f"it has {len(found)} bytes, not {SECRET_BYTES}"
        except OSError as error:
            found, problem = b"", error.strerror
        if problem is None:
            return cls(found, shared=shared, path=path)
        logger().warning("owner_secret_not_kept", file=str(path), reason=problem)
        return cls(fresh, shared=shared)

    def keep_secret(self) -> None:
        """Restore the secret if its file was removed: what is stored from now on must be readable after a restart.
        Another secret in its place stays, and the next start uses it."""
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

    def tenant_of(self, headers: Headers) -> bytes:
        """TENANT_BYTES that are the same for the same keys."""
        named = dict(headers)
        keys = [] if self._shared else list(map(named.__getitem__, KEY_HEADERS & named.keys()))
        if len(keys) > 1 or (len(named) < len(headers) and keys):  # hardly ever; in their order
            keys = [value for name, value in headers if name in KEY_HEADERS]
        return hashlib.blake2b(b"\n".join(keys), key=self._secret, digest_size=TENANT_BYTES).digest()

    @property
    def fleet(self) -> str:
        """A fingerprint of the secret."""
        return hashlib.blake2b(b"which secret", key=self._secret, digest_size=8).hexdigest()

    def needs_key(self, headers: Headers) -> bool:
        """Whether the request has no key although a key would make it another tenant's."""
        return not self._shared and not any(name in KEY_HEADERS for name, _ in headers)


def create_tenants(settings: Settings) -> Tenants:
    """Tell tenants apart by `server.secret`, or by the data folder's own secret."""
    secret, shared = settings.server.secret, settings.artifacts.shared
    if secret is None:
        return Tenants.of_folder(settings.data_dir, shared=shared)
    return Tenants(bytes.fromhex(secret.get_secret_value()), shared=shared)


def with_secret(settings: Settings) -> Settings:
    """The settings with the secret that replicas share: `server.secret`, else the one that 0.2 kept in the store at
    `artifacts.url`. Blocks. Raises SettingsError if it is needed and cannot be found."""
    if settings.server.secret is not None or (settings.artifacts.url is None and settings.state.url is None):
        return settings
    if settings.artifacts.url is None:
        former = settings.data_dir.absolute() / OWNER_FILE
        raise SettingsError(_MISSING + (f", or those of {former}: {_digits_of(former)}" if former.exists() else ""))
    store = create_folder(settings)
    place = f"{store.address}/{SECRET_KEY}"
    try:
        found = store.get(SECRET_KEY).content
    except FileNotFoundError:
        raise SettingsError(_MISSING) from None
    except TROUBLE as error:
        raise SettingsError(f"{_MISSING}; {place}, where 0.2 kept it, cannot be read: {reason_of(error)}") from None
    if len(found) != SECRET_BYTES:
        raise SettingsError(f"{_MISSING}; {place}, where 0.2 kept it, has {len(found)} bytes, not {SECRET_BYTES}")
    logger().warning("secret_not_set", found=place, set=f"server.secret: download it, then {_digits_of(OWNER_FILE)}")
    return settings.model_copy(update={"server": settings.server.model_copy(update={"secret": SecretStr(found.hex())})})


def _digits_of(file: Path | str) -> str:
    return f"od -An -v -tx1 {file} | tr -d ' \\n'"


def _agreed(path: Path, fresh: bytes) -> bytes:
    """The content of a file, which becomes `fresh` if there was none; if several processes offer one at once, one of
    them wins, and none reads half of it. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        create_file(path, fresh)
    return path.read_bytes()


UNFINISHED_SECONDS: Final = 60.0
"""A half-written file older than this was left by a killed worker: writing one takes milliseconds."""


def look_after(data_dir: Path, tenants: Tenants, store: ArtifactFolder) -> None:
    """Keep the secret in the data folder, remove what killed workers have left there, and probe a store that is left
    alone. Blocks; takes a stat and a list of the folder if all is well."""
    tenants.keep_secret()
    with contextlib.suppress(OSError):
        remove_unfinished(data_dir, UNFINISHED, time.time() - UNFINISHED_SECONDS)
    if store.cooldown.why is not None:
        store.probe()
