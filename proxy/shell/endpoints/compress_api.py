"""`/v1/compress` and `/v1/retrieve`, as headroom has them: for gateways that send messages elsewhere themselves.

Rule: clients that may see the operator's pages may ask; an original is served only to the tenant that brought it.
Everything that is taken out is stored before the response is sent; anything that cannot be stored stays in. Nothing
goes to an upstream.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from proxy.config import ServerSettings
from proxy.core.artifact import Artifact
from proxy.core.compaction import Compressed
from proxy.core.text import count_lines
from proxy.errors import (
    ArtifactNotFound,
    ClientLeft,
    CompressionFailed,
    CompressionTimeout,
    KeyNeeded,
    MethodNotAllowed,
    ProxyError,
    RequestTimeout,
)
from proxy.shell.artifacts import ArtifactsByHash, Record, Tenants
from proxy.shell.endpoints.guard import Guard
from proxy.shell.endpoints.responses import request_id_of
from proxy.shell.http import content_headers, plain_body, read_body, respond, until_client_leaves
from proxy.shell.relay import Routes
from proxy.shell.resources import BoundedMap, Share, Workload, in_thread, logger, write_lines_for
from proxy.shell.upstream import Headers, header
from proxy.wire import compress_api

COMPRESS_PATH: Final = "/v1/compress"
RETRIEVE_PATH: Final = "/v1/retrieve"
BYPASS_HEADER: Final = b"x-headroom-bypass"
COMPRESS_SECONDS: Final = 50.0
"""Less than the minute that LiteLLM waits."""
_MAX_COUNTED: Final = 10_000
"""Originals whose retrievals are counted."""
_EVERY_MESSAGE: Final = 1 << 62


class CompressApi:
    """Serves these paths."""

    def __init__(
        self,
        routes: Routes,
        tenants: Tenants,
        guard: Guard,
        kept: ArtifactsByHash,
        server: ServerSettings,
        workload: Workload,
        most_seconds: float = COMPRESS_SECONDS,
    ) -> None:
        self._routes = routes
        self._tenants = tenants
        self._guard = guard
        self._kept = kept
        self._max_body_bytes = server.max_body_bytes
        self._pause_seconds = server.body_timeout_seconds
        self._workload = workload
        self._most_seconds = most_seconds
        self._retrievals: BoundedMap[tuple[str, str], int] = BoundedMap(_MAX_COUNTED)
        """Counts since this process began, by tenant and hash."""

    def serves(self, path: str) -> bool:
        """Whether a path is served here."""
        return path in (COMPRESS_PATH, RETRIEVE_PATH) or path.startswith(RETRIEVE_PATH + "/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
        request_id = request_id_of(headers)
        write_lines_for(request_id.decode())
        share = self._workload.share()
        own: Headers = []
        try:
            status, answer = 200, await self._answered(scope, receive, share, request_id.decode())
        except ClientLeft:
            return
        except ProxyError as error:
            status, answer = error.status, compress_api.error_body(error)
            own = _headers_of(error)
        except Exception:
            logger().exception("request_failed", request_id=request_id.decode())
            status, answer = 503, compress_api.error_body(_failure(request_id))
        finally:
            share.release()
        own += [(b"x-request-id", request_id), (b"cache-control", b"no-store")]
        described = [*content_headers(b"application/json", len(answer)), *own]
        await respond(send, status, described, b"" if scope["method"] == "HEAD" else answer)

    async def _answered(self, scope: Scope, receive: Receive, share: Share, request_id: str) -> bytes:
        await self._guard.admit(scope)
        headers: Headers = scope["headers"]
        tenant = self._tenants.tenant_of(headers).hex()
        path, method = scope["path"], scope["method"]
        if path not in (COMPRESS_PATH, RETRIEVE_PATH):
            if method not in ("GET", "HEAD"):
                raise MethodNotAllowed("this path takes GET or HEAD")
            async with until_client_leaves(receive):
                return await self._original(path.removeprefix(RETRIEVE_PATH + "/"), tenant, share, request_id)
        if method != "POST":
            raise MethodNotAllowed("this path takes POST")
        body = await read_body(Request(scope, receive), self._max_body_bytes, self._pause_seconds, share)
        async with until_client_leaves(receive):
            if path == RETRIEVE_PATH:
                digest = compress_api.hash_in(await in_thread(plain_body, body, headers, self._max_body_bytes))
                return await self._original(digest, tenant, share, request_id)
            try:
                async with asyncio.timeout(self._most_seconds):
                    return await self._compressed(headers, body, tenant, request_id)
            except TimeoutError:
                seconds = f"{self._most_seconds:g}"
                raise CompressionTimeout(f"the messages were not compressed within {seconds} s") from None

    async def _compressed(self, headers: Headers, body: bytes, tenant: str, request_id: str) -> bytes:
        body = await in_thread(plain_body, body, headers, self._max_body_bytes)
        parsed = await in_thread(compress_api.compress_request_in, body)
        planner = (await self._routes.of(compress_api.WIRE, [], body)).planner
        is_bypassed = header(headers, BYPASS_HEADER).lower() == b"true"
        protected = _EVERY_MESSAGE if is_bypassed else parsed.protected
        made = await planner.compressed(compress_api.WIRE, tenant, parsed.request, protected, parsed.most_tokens)
        taken = await in_thread(_records, made)
        made = made.without(await self._kept.keep(taken, tenant))
        logger().info(
            "messages_compressed",
            request_id=request_id,
            model=parsed.request.model[:200],
            messages=len(made.entries),
            tokens_before=made.tokens_before,
            tokens_after=made.tokens_after,
            edits=made.reasons,
        )
        return await in_thread(compress_api.compressed_body, made)

    async def _original(self, digest: str, tenant: str, share: Share, request_id: str) -> bytes:
        """The response with the original that is stored under a hash. Raises ArtifactError."""
        if not compress_api.HASH.fullmatch(digest):
            raise ArtifactNotFound("nothing is kept under this; a hash has 12 to 24 of 0-9 and a-f")
        record, stored = await self._kept.find(digest, tenant)
        await self._workload.take(share, stored.size)
        content = await self._kept.content(stored)
        count = (self._retrievals.get((tenant, digest)) or 0) + 1
        self._retrievals.put((tenant, digest), count)
        answer = await in_thread(
            compress_api.original_body,
            digest,
            content,
            stored.metadata.media_type,
            tool=stored.metadata.tool,
            tokens=record.tokens,
            lines=record.lines,
            count=count,
        )
        logger().info("artifact_read", request_id=request_id, artifact=stored.name, status=200, sent_bytes=len(answer))
        return answer


def _records(made: Compressed) -> list[tuple[Artifact, Record]]:
    """The artifacts to store, each with its record."""
    return [
        (
            artifact,
            Record(
                artifact.id,
                made.budget.model_tokens(entry.original_size.tokens),
                (count_lines(entry.original.text()), count_lines(entry.message.text())),
            ),
        )
        for entry, artifact in made.taken_out()
    ]


def _headers_of(error: ProxyError) -> Headers:
    """Headers that an error adds."""
    if isinstance(error, KeyNeeded):
        return [(b"www-authenticate", b"Bearer")]
    return [(b"connection", b"close")] if isinstance(error, RequestTimeout) else []


def _failure(request_id: bytes) -> ProxyError:
    return CompressionFailed(f"the proxy failed; its log says why under request id {request_id.decode()}")
