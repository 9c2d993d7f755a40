"""`/v1/compress` with `/v1/retrieve`, as headroom has them: for gateways that send messages elsewhere themselves.

Rule: clients that may see the operator's pages may ask; an original is served only to the tenant that brought it.
Everything that is taken out is stored before the response is sent; anything that cannot be stored stays in. Nothing
goes to an upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import WithJsonSchema

from proxy.core.artifact import Artifact
from proxy.core.compaction import Plan
from proxy.core.text import count_lines
from proxy.errors import ArtifactNotFound, CompressionFailed, CompressionTimeout
from proxy.shell.artifacts import ArtifactsByHash, Record, in_words
from proxy.shell.endpoints.responses import HEADERS, JSON_RESPONSES, reported, request_id_of
from proxy.shell.endpoints.services import Services, Serving, operator_only
from proxy.shell.http import read_plain_body, until_client_leaves
from proxy.shell.resources import BoundedMap, Share, in_thread, logger, write_lines_for
from proxy.wire import compress_api

BYPASS_HEADER: Final = "x-headroom-bypass"
COMPRESS_SECONDS: Final = 50.0
"""Less than the minute that LiteLLM waits."""
_MAX_COUNTED: Final = 10_000
"""Originals whose retrievals are counted."""
_EVERY_MESSAGE: Final = 1 << 62
_HASH: Final = compress_api.HASH.pattern


gateways = APIRouter(
    tags=["gateways"], dependencies=[Depends(operator_only)], responses=JSON_RESPONSES, default_response_class=Response
)
_retrievals: Final[BoundedMap[tuple[str, str], int]] = BoundedMap(_MAX_COUNTED)
"""Counts since this process began, by tenant and hash."""


class _Asked(NamedTuple):
    """A request that was admitted."""

    request: Request
    services: Services
    by_hash: ArtifactsByHash
    tenant: str
    request_id: str
    share: Share

    async def body(self) -> bytes:
        """The body without its compression. Raises ProxyError."""
        return await read_plain_body(self.request, self.services.server, self.share)

    async def answered(self, work: Awaitable[bytes]) -> Response:
        """The response, unless the client leaves before. Raises ProxyError."""
        async with until_client_leaves(self.request.receive):
            content = await work
        return Response(content, headers={**HEADERS, "x-request-id": self.request_id}, media_type="application/json")


async def admitted(request: Request, services: Serving) -> AsyncIterator[_Asked]:
    """A dependency of these endpoints. Raises ProxyError: callers take a 503 for a defect of the proxy."""
    request_id = request_id_of(request.scope["headers"]).decode()
    write_lines_for(request_id)
    assert services.by_hash is not None, "else the path is the upstream's"
    tenant, share = services.tenants.tenant_of(request.scope["headers"]).hex(), Share(services.workload)
    try:
        yield _Asked(request, services, services.by_hash, tenant, request_id, share)
    except Exception as error:
        failure = reported(error, request_id)
        raise failure if failure is error else CompressionFailed(failure.message) from None
    finally:
        share.release()


_Admitted = Annotated[_Asked, Depends(admitted)]


@gateways.post("/v1/compress", summary="Shorter messages, for a gateway that sends them itself")
async def compress(asked: _Admitted) -> Response:
    """As headroom has it, with `compress_api: true`; without, the path is the upstream's. Nothing is sent to a
    model."""
    body = await asked.body()
    try:
        async with asyncio.timeout(COMPRESS_SECONDS):
            return await asked.answered(_compressed(asked, body))
    except TimeoutError:
        raise CompressionTimeout(f"the messages were not compressed within {COMPRESS_SECONDS:g} s") from None


@gateways.post("/v1/retrieve", summary="An original")
async def retrieve(asked: _Admitted) -> Response:
    """What was taken out under the `hash` of the body, with `compress_api: true`."""
    return await original(asked, compress_api.hash_in(await asked.body()))


@gateways.get("/v1/retrieve/{hash:path}", summary="An original")
async def original(
    asked: _Admitted,
    hash: Annotated[
        str, Path(description="From the text in its place."), WithJsonSchema({"type": "string", "pattern": _HASH})
    ],
) -> Response:
    """The same for a GET."""
    return await asked.answered(_original(asked, hash))


async def _compressed(asked: _Asked, body: bytes) -> bytes:
    parsed = await in_thread(compress_api.compress_request_in, body)
    planner = (await asked.services.routes.of(compress_api.WIRE, [], body)).planner
    planned = partial(planner.compressed, compress_api.WIRE, asked.tenant, parsed.request)
    if asked.request.headers.get(BYPASS_HEADER, "").lower() == "true":
        made = await planned(_EVERY_MESSAGE)
    else:
        made = await planned(parsed.protected, parsed.window_tokens)
        if await asked.by_hash.keep(await in_thread(_records, made), asked.tenant):
            made = await planned(_EVERY_MESSAGE)  # what cannot be kept is not taken out
    figures = compress_api.figures_of(made)
    logger().info(
        "messages_compressed",
        request_id=asked.request_id,
        model=parsed.request.model[:200],
        messages=len(parsed.request.conversation),
        tokens_before=figures["tokens_before"],
        tokens_after=figures["tokens_after"],
        edits=figures["transforms_summary"],
    )
    return await in_thread(compress_api.compressed_body, made, figures)


async def _original(asked: _Asked, digest: str) -> bytes:
    """The response with the original that is stored under a hash. Raises ArtifactError."""
    if not compress_api.HASH.fullmatch(digest):
        raise ArtifactNotFound("nothing is kept under this; a hash has 12 to 24 of 0-9 and a-f")
    record, stored = await asked.by_hash.find(digest, asked.tenant)
    await asked.share.take(stored.size)
    content, kept = await asked.services.reader.piece(stored, 0, stored.size), stored.metadata
    count = (_retrievals.get((asked.tenant, digest)) or 0) + 1
    _retrievals.put((asked.tenant, digest), count)
    answer = await in_thread(
        compress_api.original_body,
        digest,
        content,
        kept.media_type,
        tool=kept.tool,
        tokens=record.tokens,
        lines=record.lines,
        count=count,
    )
    logger().info(
        "artifact_read", request_id=asked.request_id, artifact=stored.name, status=200, sent_bytes=len(answer)
    )
    return answer


def _records(made: Plan) -> list[tuple[Artifact, Record]]:
    """The artifacts to store, each with its record."""
    tokens = {name: block.tokens_before for block in made.blocks for name in block.artifacts}
    left_out = sum(block.tokens_before for block in made.blocks if not block.tokens_after)
    becomes = {edit.artifact.id: in_words(edit.becomes) for edit in made.edits if edit.artifact is not None}
    return [
        (
            artifact,
            Record(
                artifact.id,
                made.budget.model_tokens(tokens.get(artifact.id, left_out)),
                (count_lines(artifact.content.decode("utf-8", "replace")), count_lines(becomes.get(artifact.id, ""))),
            ),
        )
        for artifact in made.artifacts
    ]
