"""What stays when the settings are read again, and what becomes of an application that cannot start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy import reloading
from proxy.config.settings import Settings, SettingsError
from proxy.errors import SettingsRefused
from proxy.reloading import FIXED, Reloadable, loaded_again


def settings(folder: Path, **stated: Any) -> Settings:
    return Settings(**{"data_dir": folder, **stated})


def test_what_cannot_change_stays_as_it_was_and_is_named(tmp_path: Path) -> None:
    running = settings(tmp_path, server={"port": 1, "max_connections": 10})
    wanted = settings(
        tmp_path / "other", mode="off", server={"port": 2, "max_connections": 11, "max_body_bytes": 5_000}
    )
    found, waiting = loaded_again(lambda: wanted, running)
    assert waiting == ["data_dir", "server.max_connections", "server.port"]
    assert (found.data_dir, found.server.port, found.server.max_connections) == (tmp_path, 1, 10)
    assert (found.mode, found.server.max_body_bytes) == ("off", 5_000)
    assert not (tmp_path / "other").exists()


def test_every_setting_that_is_said_to_stay_is_one() -> None:
    for name in FIXED:
        reloading._value(Settings(), name)


def test_wrong_settings_are_refused_with_their_lines(tmp_path: Path) -> None:
    def wrong() -> Settings:
        raise SettingsError("mode: no\nserver.port: no")

    with pytest.raises(SettingsRefused) as refused:
        loaded_again(wrong, settings(tmp_path))
    assert refused.value.message == "mode: no\nserver.port: no"


def test_an_upstream_that_is_the_proxy_itself_is_refused(tmp_path: Path) -> None:
    wanted = settings(tmp_path, upstream={"base_url": "http://127.0.0.1:8787"})
    with pytest.raises(SettingsRefused, match="must not be the proxy itself"):
        loaded_again(lambda: wanted, settings(tmp_path))


class Application:
    """Answers with its mode; one that is off cannot start."""

    def __init__(self, stated: Settings, *_: Any) -> None:
        self.mode = stated.mode
        self.ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            if self.mode == "off":
                await send({"type": "lifespan.startup.failed", "message": "it is off"})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.ended = True
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await receive()
            await send({"type": self.mode})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Application]:
    found: list[Application] = []

    def make(*given: Any) -> Application:
        found.append(Application(*given))
        return found[-1]

    monkeypatch.setattr(reloading, "create_app", make)
    monkeypatch.setattr(reloading, "forget_what_is_gone", lambda: None)
    monkeypatch.setattr(reloading.signal, "signal", lambda *_: None)
    return found


class Server:
    """Starts and stops an application as uvicorn does."""

    def __init__(self, app: Reloadable) -> None:
        self._app = app
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()

    async def start(self) -> str:
        self._life = asyncio.create_task(self._app({"type": "lifespan"}, self._told.get, self._said.put))
        return await self.tell("startup")

    async def tell(self, kind: str) -> str:
        await self._told.put({"type": f"lifespan.{kind}"})
        answer: str = (await self._said.get())["type"]
        if kind == "shutdown":
            await self._life
        return answer

    async def ask(self, until: asyncio.Event | None = None) -> str:
        said: list[str] = []

        async def receive() -> Message:
            if until is not None:
                await until.wait()
            return {}

        async def send(message: Message) -> None:
            said.append(message["type"])

        await self._app({"type": "http"}, receive, send)
        return said[0]


async def test_a_request_ends_where_it_began_and_the_former_application_after_it(
    tmp_path: Path, made: list[Application]
) -> None:
    wanted = [settings(tmp_path, mode="observe")]
    app = Reloadable(settings(tmp_path), lambda: wanted[0])
    server, go_on = Server(app), asyncio.Event()
    assert await server.start() == "lifespan.startup.complete"
    early = asyncio.create_task(server.ask(go_on))
    await asyncio.sleep(0)
    assert (await app.reload()).status == "reloaded"
    assert await server.ask() == "observe"
    assert not made[0].ended
    go_on.set()
    assert await early == "on"
    assert (await app.reload()).status == "unchanged"
    assert await server.tell("shutdown") == "lifespan.shutdown.complete"
    assert [one.ended for one in made] == [True, True]


async def test_an_application_that_cannot_start_takes_nobodys_place(tmp_path: Path, made: list[Application]) -> None:
    app = Reloadable(settings(tmp_path), lambda: settings(tmp_path, mode="off"))
    server = Server(app)
    await server.start()
    with pytest.raises(SettingsRefused, match="nothing can be served with these settings: RuntimeError"):
        await app.reload()
    assert await server.ask() == "on"
    assert await server.tell("shutdown") == "lifespan.shutdown.complete"
    assert [one.ended for one in made] == [True, False]


async def test_a_first_application_that_cannot_start_is_told_to_the_server(
    tmp_path: Path, made: list[Application]
) -> None:
    server = Server(Reloadable(settings(tmp_path, mode="off"), lambda: settings(tmp_path)))
    assert await server.start() == "lifespan.startup.failed"
    assert len(made) == 1


async def test_a_hangup_before_the_start_is_not_lost(tmp_path: Path, made: list[Application]) -> None:
    app = Reloadable(settings(tmp_path), lambda: settings(tmp_path, mode="observe"))
    app._note_hangup()
    server = Server(app)
    await server.start()
    async with asyncio.timeout(20):
        while len(made) < 2 or await server.ask() != "observe":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await server.tell("shutdown")
