"""The tools for clients of the Model Context Protocol, by its official SDK.

Rule: a client reads what its key may read at `/artifacts`, and nothing else. Each request is complete in itself, so any
worker and any replica answers it. What the SDK logs may quote a client: only the kinds of its failures reach the log.

The protocol: https://modelcontextprotocol.io/specification. The SDK is an extra, and takes a second to load.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

from proxy import __version__
from proxy.core.retrieval_tool import SEARCH, SEARCH_SPEC, SPEC, ToolSpec, wanted_by
from proxy.core.text import utf8_length
from proxy.shell.artifacts import ArtifactTools, TenantNames, ToolText
from proxy.shell.endpoints.guard import ArtifactRights
from proxy.shell.resources import logger

PAGE_BYTES: Final = 24 * 1024
"""Limit of a result. Claude Code warns from 10,000 tokens on and allows 25,000: https://code.claude.com/docs/en/mcp"""
_READS_ONLY: Final = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

TenantsOf = Callable[[ServerRequestContext[Any, Any]], TenantNames]
"""Whose artifacts a call may read."""


def create_server(tools: ArtifactTools, tenants_of: TenantsOf) -> Server[Any]:
    """A server that lists the tools and answers their calls."""
    log = logger()

    async def list_tools(_: ServerRequestContext[Any, Any], __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(SPEC), _described(SEARCH_SPEC)])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = params.arguments or {}
        artifact: str | None = None
        try:
            if params.name == SPEC.name:
                wanted = wanted_by(json.dumps(arguments))
                artifact = wanted.artifact if wanted is not None else None
                result = await tools.read(wanted, tenants_of(context), PAGE_BYTES)
            elif params.name == SEARCH:
                result = await tools.search(arguments, tenants_of(context), PAGE_BYTES)
            else:
                result = ToolText(f"there are two tools here: {SPEC.name} and {SEARCH}", is_failure=True)
        except Exception:
            log.exception("request_failed", request_id=str(context.request_id)[:100])
            result = ToolText("the proxy failed; its log says why", is_failure=True)
        log.info(
            "artifact_read",
            tool=params.name if params.name in (SPEC.name, SEARCH) else None,
            artifact=artifact,
            failed=result.is_failure,
            sent_bytes=utf8_length(result.text),
        )
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=result.text)], is_error=result.is_failure
        )

    server: Server[Any] = Server("context-proxy", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.clear()  # a span for each message: traces are of chat requests
    return server


@contextlib.asynccontextmanager
async def speaking(tools: ArtifactTools, rights: ArtifactRights) -> AsyncIterator[ASGIApp]:
    """Speak streamable HTTP: each POST gets its response as JSON, and there are no sessions."""

    def tenants_of(context: ServerRequestContext[Any, Any]) -> TenantNames:
        assert context.request is not None, "HTTP brought it"
        return (rights.tenant_of(context.request.scope),)

    log_kinds_of_failures()
    manager = StreamableHTTPSessionManager(create_server(tools, tenants_of), json_response=True, stateless=True)
    async with manager.run():
        yield manager.handle_request


async def serve_stdio(tools: ArtifactTools, tenants: TenantNames) -> None:
    """Answer one client on standard input and output until it closes them."""
    log_kinds_of_failures()
    server = create_server(tools, lambda _: tenants)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _KindsOfFailures(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        logger().error("mcp_failed", where=record.name, kind=kind.__name__ if kind else None)


def log_kinds_of_failures() -> None:
    """Send the SDK's errors to the log without their words."""
    theirs = logging.getLogger("mcp")
    theirs.handlers[:] = [_KindsOfFailures(logging.ERROR)]
    theirs.setLevel(logging.ERROR)
    theirs.propagate = False


def _described(spec: ToolSpec) -> types.Tool:
    return types.Tool(
        name=spec.name, description=spec.description, input_schema=dict(spec.schema), annotations=_READS_ONLY
    )
