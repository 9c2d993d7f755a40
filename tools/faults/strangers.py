"""Strangers: a web page whose name leads here, a client behind a front that passes for local, and a guesser of keys.

Rule: a stranger gets a refusal and nothing else, and no other client is slower for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from support.upstream import SocketServer

from tools.faults.stage import KEY, PATIENCE_SECONDS, Heard, Stage, Upstream, chat, staged
from tools.faults.trials import Extent, Tried

_ADMIN_KEY: Final = "operator-canary-0123456789"
_OWN_KEY: Final = "sk-own-canary"
_WRONG_KEY: Final = "wrong-key-canary-0123456789"
_FEW: Final = 10
_API: Final = ("POST /v1/chat/completions", "POST /v1/messages", "POST /v1/responses", "GET /v1/models", "GET /v1/x")
_PAGES: Final = (
    *("GET /", "GET /decisions", "GET /decisions/x", "GET /overview", "GET /conversations", "GET /events"),
    *("GET /openapi.json", "GET /docs", "GET /dashboard/dashboard.js", "POST /explain", "POST /-/reload"),
)
"""The operator's."""
_OPEN: Final = ("GET /metrics", "GET /healthz", "GET /readyz", "GET /artifacts/x")
_FRONTS: Final = (
    *("forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-client-ip"),
    *("x-forwarded-client-cert", "x-envoy-external-address", "x-envoy-internal", "cf-connecting-ip", "true-client-ip"),
)


async def strangers(_: Extent) -> list[Tried]:
    """Web pages in a browser on this machine call a proxy that adds a key of its own."""
    tried = Tried("No web page spends the proxy's key", "paths called by a foreign `Host` or `Origin`")
    known = Tried("Permitted callers are served", "the same paths by names of this machine and of the settings")
    server = {"host_names": ["proxy.example"]}
    async with staged(upstream={"api_key": _OWN_KEY}, server=server, compress_api=True) as stage:
        for what in (*_API, *_PAGES, *_OPEN, "POST /v1/compress"):
            for headers in (
                {"host": "evil.test"},
                {"host": "127.0.0.1.evil.test:8787"},
                {"host": "localhost", "origin": "http://evil.test"},
                {"host": "localhost", "origin": "null"},
            ):
                heard = await _request(stage, what, **headers)
                tried.note(f"{what} by {headers}: {heard.status}", held=heard.status == 403)
            for headers in ({"host": "localhost"}, {"host": "proxy.example"}):
                if what not in _PAGES:
                    heard = await _request(stage, what, authorization=f"Bearer {KEY}", **headers)
                    known.note(f"{what} by {headers}: {heard.status}", held=heard.status in (200, 404))
            sent = 2 if what in _API and what.startswith("POST") else 0
            tried.note(f"{what} at the upstream", held=len(stage.upstream.bodies) == sent)
            stage.upstream.bodies.clear()
    return [tried, known]


async def fronts(_: Extent) -> list[Tried]:
    """A front on the same machine, with and without headers that tell of it."""
    plain = Tried(
        "No client behind a front sees the operator's pages", "pages without the key, through a front that says so"
    )
    keyed = Tried(
        "With `admin_key` set, every client needs it",
        "pages without it, with a wrong one and with it, from this machine",
    )
    async with staged() as stage:
        for what in _PAGES:
            for name in _FRONTS:
                heard = await _request(stage, what, **{name: "127.0.0.1"})
                plain.note(f"{what} with {name}: {heard.status}", held=heard.status == 403)
    async with staged(server={"admin_key": _ADMIN_KEY}) as stage:
        for what in _PAGES:
            for headers in ({}, {"x-forwarded-for": "127.0.0.1"}):
                heard = await _request(stage, what, **headers)
                keyed.note(f"{what} with {headers}: {heard.status}", held=heard.status == 401)
        wrong = {"authorization": f"Bearer {_WRONG_KEY}"}
        for what, heard in zip(
            _PAGES, await asyncio.gather(*(_request(stage, one, **wrong) for one in _PAGES)), strict=True
        ):
            keyed.note(f"{what} with a wrong key: {heard.status}", held=heard.status == 401)
        opened = await _request(stage, "GET /decisions", authorization=f"Bearer {_ADMIN_KEY}")
        keyed.note(f"with the key: {opened.status}", held=opened.status == 200)
    return [plain, keyed]


async def wrong_keys(extent: Extent) -> list[Tried]:
    """Wrong keys are tried; the operator and agents are served as before."""
    count = max(150, 600 // extent.every)
    tried = Tried("A wrong key opens nothing, is slowed and logged", f"{count} wrong keys at once")
    beside = Tried("Wrong keys slow no other client", "the right key, and requests of agents, beside them")
    async with staged(server={"admin_key": _ADMIN_KEY}) as stage:
        begun = time.perf_counter()
        wrong = _with_wrong_keys(stage, count)
        await asyncio.sleep(0)
        for number in range(10):
            statuses = await _statuses(stage)
            beside.note(f"{number}: {statuses}", held=statuses == (200, 200))
        for number, heard in enumerate(await asyncio.gather(*wrong)):
            tried.note(f"{number}: {heard.status}", held=heard.status == 401)
        tried.note("it was slowed", held=time.perf_counter() - begun >= 1.0)
        tried.note("each is logged", held=_logged(stage) == count)
        beside.note("they waited for wrong keys, each time", held=await _is_answered_first(stage))
        tried.note("the log has no key", held=_WRONG_KEY.encode() not in stage.log())
    return [tried, beside]


async def _is_answered_first(stage: Stage) -> bool:
    """Whether the right key and an agent are answered while wrong keys that came before them wait. Once is enough: a
    slow machine may take longer than they wait."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                before = _logged(stage)
                wrong = _with_wrong_keys(stage, _FEW)
                while _logged(stage) < before + _FEW:
                    await asyncio.sleep(0.01)
                statuses = await _statuses(stage)
                is_first = not all(one.done() for one in wrong)
                await asyncio.gather(*wrong)
                if is_first or statuses != (200, 200):
                    return is_first
    return False


async def _statuses(stage: Stage) -> tuple[int, int]:
    """Statuses of a request with the right key and of an agent's request."""
    right = await _request(stage, "GET /decisions", authorization=f"Bearer {_ADMIN_KEY}")
    return right.status, (await stage.ask(chat())).status


def _with_wrong_keys(stage: Stage, count: int) -> list[asyncio.Task[Heard]]:
    return [
        asyncio.create_task(_request(stage, "GET /decisions", authorization=f"Bearer {_WRONG_KEY}{number}"))
        for number in range(count)
    ]


def _logged(stage: Stage) -> int:
    return stage.log().count(b'"wrong_admin_key"')


async def keys_of_clients(_: Extent) -> list[Tried]:
    """A client asks for the models of several upstreams."""
    tried = Tried("A client's key reaches only its own upstream", "lists of the models of three upstreams")
    other, own = Upstream(), Upstream()
    async with SocketServer(other) as other_server, SocketServer(own) as own_server:
        routed = [
            {"match": "other-*", "base_url": other_server.base_url},
            {"match": "own-*", "base_url": own_server.base_url, "api_key": _OWN_KEY},
        ]
        async with staged(upstreams=routed) as stage:
            for credential in ("authorization", "x-api-key", "api-key", "cookie", "x-goog-api-key"):
                for upstream in (other, own, stage.upstream):
                    upstream.heads.clear()
                await _request(stage, "GET /v1/models", **{credential: f"Bearer {KEY}"})
                reported = [*other.heads, *own.heads]
                tried.note(f"{credential} at another upstream", held=KEY not in str(reported) and len(reported) > 0)
                tried.note(f"{credential} at its own", held=KEY in str(stage.upstream.heads))
    return [tried]


async def _request(stage: Stage, what: str, **headers: str) -> Heard:
    method, path = what.encode().split(b" ")
    body = chat() if method == b"POST" else b""
    head = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body)), **headers}
    return await stage.say(method, path.decode(), head, body)
