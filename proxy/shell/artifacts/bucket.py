"""Artifacts in a bucket, or in memory: whatever obstore opens by a URL.

Rule: several replicas may share a bucket: what one keeps all find, and each object is written whole or not at all. How
long an answer may take is bounded here, so that a thread that waits for the network comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore, from_url

from proxy.shell.artifacts.folder import Listed

if TYPE_CHECKING:  # stand in stubs only
    from obstore.store import ClientConfig, RetryConfig

CLIENT: Final[ClientConfig] = {"connect_timeout": "3s", "timeout": "8s", "allow_http": True}
"""For one request. Whether it is encrypted the endpoint says: MinIO beside the proxy is often plain `http`."""
RETRY: Final[RetryConfig] = {"max_retries": 2, "retry_timeout": timedelta(seconds=6)}
"""No new try begins later than this after the first; well under the time that a request waits for its artifacts."""
_LISTED_AT_ONCE: Final = 1000
"""What S3 puts into one answer."""


class Bucket:
    """A bucket, or a prefix in one. Credentials come from where the tools of its provider take them."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    @property
    def address(self) -> str:
        """Its URL, which holds no credentials."""
        return self._url

    def place_of(self, key: str) -> None:
        """Nothing in it has a path."""

    def is_used(self) -> bool:
        """It is asked, not guessed."""
        return True

    def opened(self) -> ObjectStore:
        """Connects when it is used. Raises one of TROUBLE when the URL or the credentials cannot be understood."""
        return self._opened

    @cached_property
    def _opened(self) -> ObjectStore:
        return from_url(self._url, client_options=CLIENT, retry_config=RETRY)

    def is_surely_there(self, key: str, size: int) -> bool:  # noqa: ARG002 - a local folder looks at them
        """Yes: nobody sweeps what was used within the last hour, and asking would take longer than a whole request."""
        return True

    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it. Raises one of TROUBLE."""
        obstore.put(self.opened(), key, content)

    def agreed(self, key: str, fresh: bytes) -> bytes:
        """What stands in an object, which is `fresh` when there was none; of several replicas that offer one at once,
        one wins. Raises one of TROUBLE."""
        try:
            obstore.put(self.opened(), key, fresh, mode="create")
        except AlreadyExistsError:
            return bytes(obstore.get(self.opened(), key).bytes())
        return fresh

    def listed(self, beginning: str = "") -> Iterator[Listed]:
        """The objects whose keys begin so; buckets list in the order of their keys. Raises one of TROUBLE."""
        folder = beginning.rpartition("/")[0] or None
        for page in obstore.list(self.opened(), prefix=folder, offset=beginning or None, chunk_size=_LISTED_AT_ONCE):
            for found in page:
                if not found["path"].startswith(beginning):
                    return
                yield Listed(found["path"], found["last_modified"].timestamp(), found["size"])

    def remove_staged(self, before: float) -> None:
        """Nothing is staged; parts of uploads that broke off are the bucket's own to remove."""
