"""Artifacts by the Model Context Protocol, read with the SDK's own client: over HTTP, as any MCP client does."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from support.journey import KEY, World, cut, long_text

from proxy.shell.artifacts import ArtifactTools

if TYPE_CHECKING:
    from mcp import Client

LONG = long_text(5_000, "café")
OTHER_KEY = "sk-somebody-else"


@contextlib.asynccontextmanager
async def client_of(world: World, key: str | None = KEY, proxy: int = 0, mode: str = "auto") -> AsyncIterator[Client]:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    url = world.proxies[proxy].removesuffix("/v1") + "/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def call_tool(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    """The text of a result, and whether it is an error."""
    result = await client.call_tool(tool, arguments)
    assert [content.type for content in result.content] == ["text"]
    return result.content[0].text, bool(result.is_error)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_finds_and_reads_what_its_own_requests_have_left(build: Any, mode: str) -> None:
    world = build(mcp=True)
    name = cut(world, LONG)
    async with client_of(world, mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {"read_artifact", "search_artifacts"}
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        listed, _ = await call_tool(client, "search_artifacts")
        assert name in listed
        found, _ = await call_tool(client, "search_artifacts", grep="café 4711:")
        assert found.splitlines()[2].startswith("4712:café 4711:")
        page, failed = await call_tool(client, "read_artifact", id=name, lines="2001-2003")
        assert (page.splitlines()[1:], failed) == (LONG.splitlines()[2000:2003], False)


async def test_a_page_says_how_to_continue_and_all_pages_together_are_the_whole(build: Any) -> None:
    world = build(mcp=True)
    name, seen, following = cut(world, LONG), "", "1-"
    async with client_of(world) as client:
        while following:
            page, failed = await call_tool(client, "read_artifact", id=name, lines=following)
            header, _, rest = page.partition("\n")
            assert not failed
            assert len(page.encode()) < 26_000
            seen += rest
            found = re.search(r"lines=(\S+)\]$", header)
            following = found[1] if found else ""
    assert seen == LONG


async def test_an_artifact_is_for_the_key_that_brought_it(build: Any) -> None:
    world = build(mcp=True)
    name = cut(world, LONG)
    for key in (OTHER_KEY, None):
        async with client_of(world, key) as client:
            page, failed = await call_tool(client, "read_artifact", id=name)
            assert failed
            assert "another API key" in page
            assert "0 of 0" in (await call_tool(client, "search_artifacts"))[0]
    assert OTHER_KEY not in world.log_text


async def test_what_is_open_on_this_machine_is_open_here_too(build: Any) -> None:
    world = build(mcp=True, artifacts={"open_on_loopback": True})
    name = cut(world, LONG)
    async with client_of(world, None) as client:
        assert not (await call_tool(client, "read_artifact", id=name))[1]


async def test_any_replica_answers_any_request_of_a_client(build: Any) -> None:
    world = build(mcp=True, proxies=[{}, {}])
    name = cut(world, LONG)
    for proxy in (0, 1):
        async with client_of(world, proxy=proxy) as client:
            assert not (await call_tool(client, "read_artifact", id=name))[1]


WRONG = [
    ("read_artifact", {}, "read_artifact needs the id"),
    ("read_artifact", {"id": "tool_bash_0123456789abcdef.txt"}, "artifact not found"),
    ("search_artifacts", {"grep": "("}, "`grep` must be a regular expression"),
    ("delete_artifact", {}, "there are two tools here"),
]


async def test_a_call_that_makes_no_sense_says_what_is_allowed(build: Any) -> None:
    world = build(mcp=True)
    cut(world, LONG)
    async with client_of(world) as client:
        for tool, arguments, words in WRONG:
            text, failed = await call_tool(client, tool, **arguments)
            assert failed
            assert words in text


async def test_every_call_is_logged_without_key_pattern_or_content(build: Any) -> None:
    world = build(mcp=True)
    name = cut(world, LONG)
    async with client_of(world) as client:
        await call_tool(client, "read_artifact", id=name)
        await call_tool(client, "search_artifacts", grep="canary-pattern")
        await call_tool(client, "canary-tool")
    lines = world.logged("artifact_read", 3)
    assert [(line["tool"], line["artifact"], line["failed"]) for line in lines] == [
        ("read_artifact", name, False),
        ("search_artifacts", None, False),
        (None, None, True),
    ]
    assert "canary" not in world.log_text


async def test_a_defect_is_reported_to_the_client_and_in_the_log(build: Any, monkeypatch: Any) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("defect")

    monkeypatch.setattr(ArtifactTools, "search", fail)
    world = build(mcp=True)
    async with client_of(world) as client:
        assert await call_tool(client, "search_artifacts") == ("the proxy failed; its log says why", True)
    assert "RuntimeError: defect" in world.logged("request_failed")[0]["exception"]


def test_what_the_sdk_logs_reaches_the_log_without_its_words(build: Any) -> None:
    world = build(mcp=True)
    for text in ("canary", "another canary"):
        logging.getLogger("mcp.server.somewhere").error(text, exc_info=ValueError("canary"))
    logging.getLogger("mcp.server.somewhere").warning("canary")
    lines = world.logged("mcp_failed", 2)
    assert [(line["where"], line["kind"]) for line in lines] == [("mcp.server.somewhere", "ValueError")] * 2
    assert "canary" not in world.log_text


def test_nothing_is_at_that_path_unless_it_is_switched_on(build: Any) -> None:
    world = build()
    answer = world.client.post(world.proxies[0].removesuffix("/v1") + "/mcp", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_path")


HELLO = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPTED = {"accept": "application/json, text/event-stream"}
REFUSED = [
    ("GET", {}, b"", 405),
    ("DELETE", {}, b"", 405),
    ("POST", {"origin": "http://rebound.example"}, b"{}", 403),
    ("POST", {"origin": "http://127.0.0.1"}, b"{}", 403),
    ("POST", {}, b" " * 1_000_000, 413),
]


def test_what_the_protocol_does_not_need_is_refused(build: Any) -> None:
    world = build(mcp=True)
    url = world.proxies[0].removesuffix("/v1") + "/mcp"
    assert world.client.post(url, json=HELLO, headers=ACCEPTED).status_code == 200
    for method, headers, body, status in REFUSED:
        answer = world.client.request(method, url, content=body, headers={**ACCEPTED, **headers})
        assert answer.status_code == status
        message = answer.json()["error"]["message"]
        assert message
        assert "server.max_body_bytes" not in message, "no setting of that limit"


def test_a_body_that_is_no_call_harms_nothing(build: Any) -> None:
    world = build(mcp=True)
    url = world.proxies[0].removesuffix("/v1") + "/mcp"
    for body in (b"", b"{", b"[]", b"null", b'{"canary": 1}'):
        sent = {"content-type": "application/json", **ACCEPTED}
        assert 400 <= world.client.post(url, content=body, headers=sent).status_code < 500
    assert "canary" not in world.log_text
