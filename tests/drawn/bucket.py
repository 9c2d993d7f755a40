"""A bucket that speaks S3 in the loop of its case, and fails as a turn says.

Rule: obstore's own client speaks with it over a socket; nothing of the proxy is replaced.
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.upstream.sockets import Connection, Request

FAULTS: Final = ("late", "500", "403", "reset")
"""Applied to every response during a turn."""
_LATE_SECONDS: Final = 0.02


@dataclass
class DrawnBucket:
    """The script of a `SocketServer`."""

    objects: dict[str, bytes] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    """Unix times."""
    fault: str = ""

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.request()
            if self.fault == "reset":
                connection.reset()
                return
            if self.fault == "late":
                await asyncio.sleep(_LATE_SECONDS)
            status, headers, body = self._answered(request)
            is_head = request.line.startswith(b"HEAD")
            lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}", *headers, "", ""]
            await connection.send("\r\n".join(lines).encode() + (b"" if is_head else body))

    def names(self, folder: str) -> set[str]:
        """The names of the objects below a folder."""
        return {key.removeprefix(folder) for key in self.objects if key.startswith(folder)}

    def age(self, seconds: float) -> None:
        """Let time pass."""
        self.changed = {key: at - seconds for key, at in self.changed.items()}

    def _answered(self, request: Request) -> tuple[int, list[str], bytes]:
        method, target, _ = request.line.decode().split(" ")
        url = urlsplit(target)
        key = unquote(url.path).partition("/")[2].partition("/")[2]  # after the name of the bucket
        if self.fault in ("500", "403"):
            return int(self.fault), [], b""
        if "list-type" in url.query:
            return 200, ["content-type: application/xml"], self._listed(parse_qs(url.query))
        if method == "PUT":
            if request.values(b"if-none-match") and key in self.objects:
                return 412, [], b""
            self.objects[key], self.changed[key] = request.body, time.time()
            return 200, [f'etag: "{_etag(request.body)}"'], b""
        if method == "DELETE":
            self.objects.pop(key, None)
            self.changed.pop(key, None)
            return 204, [], b""
        if key not in self.objects:
            return 404, [], b""
        found, headers = self.objects[key], [f"last-modified: {email.utils.formatdate(self.changed[key], usegmt=True)}"]
        headers.append(f'etag: "{_etag(found)}"')
        if ranges := request.values(b"range"):
            first, last = map(int, ranges[0].removeprefix(b"bytes=").split(b"-"))
            headers.append(f"content-range: bytes {first}-{min(last, len(found) - 1)}/{len(found)}")
            return 206, headers, found[first : last + 1]
        return 200, headers, found

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        (prefix,), (after,) = query.get("prefix", [""]), query.get("start-after", [""])
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size><ETag>x</ETag>"
            f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(at))}</LastModified></Contents>"
            for key, at in sorted(self.changed.items())
            if key.startswith(prefix) and key > after
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()


def _etag(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
