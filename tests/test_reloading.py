"""What survives a reload of the settings, and how an application that cannot start ends."""

import asyncio
import contextlib
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from starlette.types import Message
from support.waiting import PATIENCE_SECONDS

from proxy import app, reloading
from proxy.app import create_app
from proxy.config import Settings, SettingsError, UpstreamSettings
from proxy.errors import SettingsRefused
from proxy.reloading import FIXED, leads_here, loaded_again
from proxy.shell.endpoints import Guard, Reloaded, Services
from proxy.shell.models import Discovery
from proxy.shell.resources import logger


@pytest.fixture(autouse=True)
def log():
    """Leaves the log as it was."""
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    structlog.reset_defaults()


def settings(folder, **stated):
    return Settings(**{"data_dir": folder, **stated})


def test_what_cannot_change_stays_as_it_was_and_is_named(tmp_path):
    running = settings(tmp_path, server={"port": 1, "max_connections": 10})
    wanted = settings(
        tmp_path / "other", mode="off", server={"port": 2, "max_connections": 11, "max_body_bytes": 5_000}
    )
    found, waiting = loaded_again(lambda: wanted, running)
    assert waiting == ["data_dir", "server.max_connections", "server.port"]
    assert (found.data_dir, found.server.port, found.server.max_connections) == (tmp_path, 1, 10)
    assert (found.mode, found.server.max_body_bytes) == ("off", 5_000)
    assert not (tmp_path / "other").exists()


def test_every_setting_documented_as_fixed_exists():
    for name in FIXED:
        reloading._value(Settings(), name)


def test_wrong_settings_are_refused_with_their_lines(tmp_path):
    def wrong():
        raise SettingsError("mode: no\nserver.port: no")

    with pytest.raises(SettingsRefused) as refused:
        loaded_again(wrong, settings(tmp_path))
    assert refused.value.message == "mode: no\nserver.port: no"


def test_an_upstream_that_is_the_proxy_itself_is_refused(tmp_path):
    wanted = settings(tmp_path, upstream={"base_url": "http://127.0.0.1:8787"})
    with pytest.raises(SettingsRefused, match="must not be the proxy itself"):
        loaded_again(lambda: wanted, settings(tmp_path))


class Made:
    """Services that answer with their mode; those that are off cannot start, those that observe cannot be closed."""

    guard = Guard(None, frozenset())
    routes = SimpleNamespace(default=SimpleNamespace(upstream=SimpleNamespace(base_path=b"/v1")))
    by_hash = None

    def __init__(self, stated):
        self.mode = stated.mode
        self.ended = False
        self.uses, self.unused = 1, asyncio.Event()

    let_go = Services.let_go

    @contextlib.asynccontextmanager
    async def running(self, _):
        if self.mode == "off":
            raise OSError("it is off")
        yield
        self.ended = True
        if self.mode == "observe":
            raise OSError("it stays open")


async def fitted(scope, receive, send):
    await receive()
    await send({"type": scope["state"]["services"].mode})


@pytest.fixture
def made(monkeypatch):
    found: list[Made] = []

    def make(stated, inherited):
        found.append(Made(stated))
        return found[-1]

    monkeypatch.setattr(app, "create_services", make)
    monkeypatch.setattr("proxy.shell.endpoints.dispatch.fitted", fitted)
    monkeypatch.setattr(reloading, "forget_what_is_gone", lambda: None)
    monkeypatch.setattr(reloading.signal, "signal", lambda *_: None)
    return found


class Server:
    """Starts and stops an application as uvicorn does."""

    def __init__(self, api):
        self._api = api
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()

    async def start(self):
        scope = {"type": "lifespan", "state": {}}
        self._life = asyncio.create_task(self._api(scope, self._to_app.get, self._said.put))
        return await self.tell("startup")

    async def tell(self, kind):
        await self._to_app.put({"type": f"lifespan.{kind}"})
        answer = await self._said.get()
        if not answer["type"].endswith("startup.complete"):
            await asyncio.gather(self._life, return_exceptions=True)
        return answer

    async def ask(self, until=None):
        types: list[str] = []

        async def receive():
            if until is not None:
                await until.wait()
            return {}

        async def send(message):
            types.append(message["type"])

        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
        await self._api(scope, receive, send)
        return types[0]

    async def reload(self):
        found: Reloaded = await self._api.state.reload()
        return found


async def test_a_request_ends_where_it_began_and_the_former_services_after_it(tmp_path, made):
    wanted = [settings(tmp_path, mode="observe")]
    server, go_on = Server(create_app(settings(tmp_path), lambda: wanted[0])), asyncio.Event()
    assert (await server.start())["type"] == "lifespan.startup.complete"
    early = asyncio.create_task(server.ask(go_on))
    await asyncio.sleep(0)
    assert (await server.reload()).status == "reloaded"
    assert await server.ask() == "observe"
    assert not made[0].ended
    go_on.set()
    assert await early == "on"
    assert (await server.reload()).status == "unchanged"
    wanted[0] = settings(tmp_path, mode="on")
    assert (await server.reload()).status == "reloaded"
    assert (await server.tell("shutdown"))["type"] == "lifespan.shutdown.complete"
    assert [one.ended for one in made] == [True, True, True]


async def test_former_services_that_still_answer_are_stopped_with_the_server(tmp_path, made):
    server, go_on = Server(create_app(settings(tmp_path), lambda: settings(tmp_path, mode="observe"))), asyncio.Event()
    await server.start()
    early = asyncio.create_task(server.ask(go_on))
    await asyncio.sleep(0)
    await server.reload()
    await server.tell("shutdown")
    assert made[0].ended
    go_on.set()
    assert await early == "on"


async def test_services_that_cannot_start_replace_none(tmp_path, made):
    server = Server(create_app(settings(tmp_path), lambda: settings(tmp_path, mode="off")))
    await server.start()
    with pytest.raises(SettingsRefused, match="nothing can be served with these settings: OSError"):
        await server.reload()
    assert await server.ask() == "on"
    assert (await server.tell("shutdown"))["type"] == "lifespan.shutdown.complete"
    assert [one.ended for one in made] == [True, False]


async def test_settings_with_which_nothing_starts_change_neither_the_log_nor_what_is_kept(tmp_path, monkeypatch):
    """With the real services: one settings file cannot be created from, the next not started."""
    monkeypatch.setattr(reloading.signal, "signal", lambda *_: None)
    stated = {"upstream": {"base_url": "http://127.0.0.1:1/v1"}, "learning": {"enabled": False}}
    changed = {**stated, "log": {"level": "debug"}, "decisions": {"stored": 7}}
    wanted = settings(tmp_path, **changed)
    api = create_app(settings(tmp_path, **stated), lambda: wanted)
    server = Server(api)
    assert (await server.start())["type"] == "lifespan.startup.complete"
    history = api.state.services.history
    metrics = api.state.services.metrics

    def shared():
        return logger().is_enabled_for(logging.DEBUG), history.max_rows, metrics.learning

    def failing(*_, **__):
        raise OSError("no start, or no creation")

    before = shared()
    for place, name in ((Discovery, "start"), (app, "Explainer")):
        with monkeypatch.context() as broken:
            broken.setattr(place, name, failing)
            with pytest.raises(SettingsRefused, match="nothing can be served"):
                await api.state.reload()
        assert shared() == before
    assert (await api.state.reload()).status == "reloaded"
    *others, learning = shared()
    assert others == [True, 7]
    assert learning != before[-1], "metrics report what the new services learn"
    wanted = settings(tmp_path, **stated)
    assert (await api.state.reload()).status == "reloaded"
    assert shared()[:-1] == before[:-1]
    assert (await server.tell("shutdown"))["type"] == "lifespan.shutdown.complete"


async def test_the_server_learns_why_the_first_services_cannot_start(tmp_path, made):
    failed = await Server(create_app(settings(tmp_path, mode="off"), lambda: settings(tmp_path))).start()
    assert failed["type"] == "lifespan.startup.failed"
    assert "OSError: it is off" in failed["message"]
    assert len(made) == 1


async def test_the_server_learns_what_could_not_be_closed(tmp_path, made):
    server = Server(create_app(settings(tmp_path, mode="observe"), lambda: settings(tmp_path)))
    await server.start()
    failed = await server.tell("shutdown")
    assert failed["type"] == "lifespan.shutdown.failed"
    assert "OSError: it stays open" in failed["message"]


async def test_a_hangup_before_the_start_is_not_lost(tmp_path, made, monkeypatch):
    hangups: list[Any] = []
    monkeypatch.setattr(reloading.signal, "signal", lambda _, handler: hangups.append(handler))
    server = Server(create_app(settings(tmp_path), lambda: settings(tmp_path, mode="observe")))
    hangups[0](1, None)
    await server.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(made) < 2 or await server.ask() != "observe":  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
    await server.tell("shutdown")


@pytest.mark.parametrize(
    ("upstream", "host", "is_itself"),
    [
        ("http://127.0.0.1:8787/v1", "127.0.0.1", True),
        ("http://localhost:8787/v1", "127.0.0.1", True),
        ("http://127.0.0.1:8787/v1", "0.0.0.0", True),
        ("http://127.0.0.2:8787/v1", "0.0.0.0", True),
        ("http://0.0.0.0:8787/v1", "127.0.0.1", True),
        ("http://127.0.0.1:8788/v1", "127.0.0.1", False),
        ("http://127.0.0.2:8787/v1", "127.0.0.1", False),
        ("http://192.0.2.1:8787/v1", "0.0.0.0", False),
        ("http://no-such-host.invalid:8787/v1", "0.0.0.0", False),
        ("https://127.0.0.1/v1", "127.0.0.1", False),
    ],
)
def test_an_upstream_that_is_the_proxy_itself_is_recognised(upstream, host, is_itself):
    reason = leads_here({"upstream": UpstreamSettings(base_url=upstream)}, host, 8787)
    assert reason == (f"upstream.base_url: must not be the proxy itself, found {upstream}" if is_itself else "")


@pytest.mark.parametrize(("upstream", "port"), [("http://127.0.0.1/v1", 80), ("https://127.0.0.1/v1", 443)])
def test_a_port_that_is_not_named_is_that_of_the_scheme(upstream, port):
    assert leads_here({"upstream": UpstreamSettings(base_url=upstream)}, "127.0.0.1", port)


def test_each_of_several_upstreams_is_looked_at_and_named():
    here, elsewhere = (UpstreamSettings(base_url=f"http://127.0.0.1:{port}/v1") for port in (8787, 8788))
    reason = leads_here({"upstreams[0]": elsewhere, "upstreams[1]": here, "upstream": elsewhere}, "127.0.0.1", 8787)
    assert reason.startswith("upstreams[1].base_url: ")
