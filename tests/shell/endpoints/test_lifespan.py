from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.shell.endpoints.lifespan import MadeWhenAsked, run_lifespan


class Trouble(Exception):
    """What goes wrong."""


async def told(*, at_start: Exception | None = None, at_stop: Exception | None = None) -> list[dict[str, Any]]:
    """What the server hears of a lifespan that goes wrong at these moments."""
    heard: list[dict[str, Any]] = []
    asked = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if at_start is not None:
            raise at_start
        yield
        if at_stop is not None:
            raise at_stop

    async def receive() -> dict[str, Any]:
        return next(asked)

    async def send(message: Any) -> None:
        heard.append(message)

    with contextlib.suppress(Trouble):
        await run_lifespan(lifespan, receive, send)
    return heard


async def test_start_and_stop_are_confirmed() -> None:
    assert await told() == [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]


async def test_a_start_that_fails_stops_the_server_and_says_why() -> None:
    (failed,) = await told(at_start=Trouble("no disk"))
    assert failed["type"] == "lifespan.startup.failed"
    assert "Trouble: no disk" in failed["message"]


async def test_a_stop_that_fails_says_why() -> None:
    _, failed = await told(at_stop=Trouble("not closed"))
    assert failed["type"] == "lifespan.shutdown.failed"
    assert "Trouble: not closed" in failed["message"]


async def ask(app: MadeWhenAsked) -> list[Any]:
    """What the application behind it sends."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http"}, receive, send)
    return sent


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send("answered")


async def test_an_application_is_made_once_however_many_ask_and_the_loop_goes_on_meanwhile() -> None:
    may_go_on, made, begun, loop = threading.Event(), [], asyncio.Event(), asyncio.get_running_loop()

    def make() -> Any:
        made.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        assert may_go_on.wait(30)
        return answer

    app = MadeWhenAsked(make)
    asking = [asyncio.create_task(ask(app)) for _ in range(3)]
    await begun.wait()
    may_go_on.set()  # the loop is free to say so
    assert await asyncio.gather(*asking) == [["answered"]] * 3
    assert await ask(app) == ["answered"]
    assert len(made) == 1
    assert made[0] is not threading.main_thread()


async def test_who_gives_up_takes_it_from_nobody() -> None:
    may_go_on = threading.Event()

    def make() -> Any:
        assert may_go_on.wait(30)
        return answer

    app = MadeWhenAsked(make)
    gone, stays = asyncio.create_task(ask(app)), asyncio.create_task(ask(app))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    may_go_on.set()
    assert await stays == ["answered"]


async def test_what_could_not_be_made_is_tried_again() -> None:
    troubles = [Trouble("once")]

    def make() -> Any:
        if troubles:
            raise troubles.pop()
        return answer

    app = MadeWhenAsked(make)
    with pytest.raises(Trouble):
        await ask(app)
    assert await ask(app) == ["answered"]
