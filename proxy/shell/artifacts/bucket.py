"""Artifacts in a bucket, or in memory: any store that obstore opens by a URL.

Rule: several replicas may share a bucket: all find what one of them stores, and each object is written whole or not at
all. The time for a response is bounded here, so that a thread waiting for the network comes back; after a call without
a response the next ones fail at once, on every thread.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from proxy.shell.artifacts.folder import (
    NO_ANSWER,
    TRIAL_KEY,
    TROUBLE,
    ArtifactFolder,
    BucketTrouble,
    Kept,
    Listed,
    NoAnswer,
    reason_of,
)

if TYPE_CHECKING:  # exist only in stubs
    from obstore.store import ClientConfig, RetryConfig

CLIENT: Final[ClientConfig] = {"connect_timeout": "3s", "timeout": "8s", "allow_http": True}
"""For one request. The endpoint says whether it is encrypted: MinIO beside the proxy often uses plain `http`."""
RETRY: Final[RetryConfig] = {"max_retries": 2, "retry_timeout": timedelta(seconds=6)}
"""No retry begins later than this after the first try; well under the time that a request waits for its artifacts."""
_UNANSWERED: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
"""In obstore's errors, which are printed as Rust prints those of object_store:
https://docs.rs/object_store/latest/object_store/client/enum.HttpErrorKind.html"""
_SMALL_BYTES: Final = 1024 * 1024
"""More may take longer than the time for a response on a slow line: no reason to leave the bucket alone."""
_LISTED_AT_ONCE: Final = 1000
"""Largest page of S3."""


class Bucket(ArtifactFolder):
    """A bucket, or a prefix in one. Credentials come from where its provider's tools look for them."""

    at_once = 64
    """A call only waits: 60 new artifacts take as long as one."""

    def __init__(self, url: str) -> None:
        super().__init__(url.rstrip("/"))  # which holds no credentials

    @cached_property
    def opened(self) -> ObjectStore:
        """Connects at the first use. Raises one of TROUBLE if the URL or the credentials are malformed."""
        with _as_trouble():
            return from_url(self.address, client_options=CLIENT, retry_config=RETRY)

    def get(self, key: str) -> Kept:
        """Read an object. Raises one of TROUBLE."""
        with self._calling():
            found = obstore.get(self.opened, key)
        with self._calling(found.meta["size"]):
            return Kept(bytes(found.bytes()), found.meta["last_modified"].timestamp())

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Read a part of an object. Raises one of TROUBLE."""
        with self._calling(stop - start):
            return bytes(obstore.get_range(self.opened, key, start=start, end=stop))

    def stat(self, key: str) -> Listed:
        """Its size, and when it last changed. Raises one of TROUBLE."""
        with self._calling():
            found = obstore.head(self.opened, key)
            return Listed(key, found["last_modified"].timestamp(), found["size"])

    def remove(self, key: str) -> None:
        """Remove an object. Raises one of TROUBLE."""
        with self._calling():
            obstore.delete(self.opened, key)

    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it. Raises one of TROUBLE."""
        with self._calling(len(content)):
            obstore.put(self.opened, key, content)

    def probe(self) -> None:
        """Try a small write during a cooldown: any response ends it, even a refusal, and no response renews it."""
        try:
            with _as_trouble():
                obstore.put(self.opened, TRIAL_KEY, b"ok\n")
        except NoAnswer as error:
            self.cooldown.begin(str(error))
            return
        except TROUBLE:
            pass
        self.cooldown.end()

    def listed(self, beginning: str = "") -> Iterator[Listed]:
        """The objects whose keys begin like this; buckets list in the order of keys. Raises one of TROUBLE."""
        folder = beginning.rpartition("/")[0] or None
        with self._calling():
            pages = obstore.list(self.opened, prefix=folder, offset=beginning or None, chunk_size=_LISTED_AT_ONCE)
            for found in itertools.chain.from_iterable(pages):
                if found["path"] < beginning:
                    continue  # where to begin is a hint: servers of Azure's API that do not know `startFrom` ignore it
                if not found["path"].startswith(beginning):
                    return
                yield Listed(found["path"], found["last_modified"].timestamp(), found["size"])

    @contextlib.contextmanager
    def _calling(self, size: int = 0) -> Iterator[None]:
        """Around every call; `size`: bytes that it moves, if many. Raises NoAnswer at once during a cooldown."""
        if (why := self.cooldown.why) is not None:
            raise NoAnswer(why)
        try:
            with _as_trouble():
                yield
        except NoAnswer as error:
            if size <= _SMALL_BYTES or str(error) != NO_ANSWER:
                self.cooldown.begin(str(error))
            raise


@contextlib.contextmanager
def _as_trouble() -> Iterator[None]:
    """obstore's own errors leave as one of TROUBLE."""
    try:
        yield
    except BaseError as error:
        trouble, unanswered = BucketTrouble(error), _UNANSWERED.search(str(error))
        if unanswered is None:
            raise trouble from error
        why = f"no connection: {reason_of(trouble)}" if "os error" in str(error) else "no connection"
        raise NoAnswer(NO_ANSWER if unanswered[1] == "Timeout" else why) from error
