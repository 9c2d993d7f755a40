"""The file by which commands of the same user find a running proxy. They make its port prove that it is still that
proxy's.

Rule: any local process can claim a port, and would be sent keys. So a port is trusted only if the server there proves
that it knows the token in the file; the token itself is never sent: each side sends a keyed hash over a nonce, the port
and its role. A file whose lock is free was left by a process that has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = "running"
"""In the data folder."""
NONCE_HEADER: Final = "x-context-proxy-nonce"
"""Of a request: any text that was not sent before."""
PROOF_HEADER: Final = "x-context-proxy-proof"
"""Of a request that has a nonce, and of the response to it."""
_MAX_NONCE_CHARS: Final = 64
_MAX_BYTES: Final = 4096


class Announcement(msgspec.Struct, frozen=True):
    """Where a proxy of this user listens."""

    pid: int
    host: str
    port: int
    token: str
    shared: bool = True
    """False: it ends with the `context-proxy run` that has started it."""

    @property
    def root(self) -> str:
        """The URL for clients on this machine; an address that means all interfaces cannot be called.

        >>> Announcement(1, "0.0.0.0", 8787, "").root, Announcement(1, "::", 80, "").root
        ('http://127.0.0.1:8787', 'http://[::1]:80')
        """
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - nothing is bound
        return f"http://[{here}]:{self.port}" if ":" in here else f"http://{here}:{self.port}"


def proof_of(token: str, role: str, port: int, nonce: str) -> str:
    """The proof that `role`, `command` or `proxy`, knows the token: a keyed hash. With the role, no side can send back
    what it got; with the port, no server can pass the question on to the proxy at another port."""
    said = f"{role} {port} {nonce[:_MAX_NONCE_CHARS]}".encode("utf-8", "replace")
    return hmac.new(token.encode(), said, "sha256").hexdigest()


def is_proven(token: str | None, role: str, port: int, nonce: str, proof: str) -> bool:
    """True if the proof is that of a side that knows the token."""
    if token is None or not nonce:
        return False
    return hmac.compare_digest(proof_of(token, role, port, nonce).encode(), proof.encode("utf-8", "replace"))


@contextlib.contextmanager
def announced(data_dir: Path, announcement: Announcement) -> Iterator[None]:
    """While the proxy listens: a file that only this user can read. Raises OSError."""
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{announcement.port}-{secrets.token_hex(4)}"
    unfinished, path = folder / f"{name}.unfinished", folder / f"{name}.json"
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the proof decides
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, msgspec.json.encode(announcement))
        os.rename(unfinished, path)  # readers see it whole and locked
        yield
    finally:
        for left in (unfinished, path):
            left.unlink(missing_ok=True)
        os.close(handle)


def announcements(data_dir: Path) -> list[Announcement]:
    """What running proxies of this user have written, the latest first. Removes what ended ones have left behind."""
    found: list[tuple[float, Announcement]] = []
    for path in (data_dir / FOLDER).glob("*.json"):
        with contextlib.suppress(OSError, ValueError), path.open("rb") as file:  # it has just ended, or is broken
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:  # the lock is held, or the file system has none
                found.append((status.st_mtime, msgspec.json.decode(file.read(_MAX_BYTES), type=Announcement)))
            else:
                path.unlink()
    return [one for _, one in sorted(found, key=lambda pair: pair[0], reverse=True)]
