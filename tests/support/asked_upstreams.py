"""What upstreams answer to the proxy's questions about their models, without a network.

`tests/shell/upstream/test_questions.py` tries the questions themselves on real sockets.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from proxy.shell.upstream.questions import NoAnswer, Questions


@dataclass(frozen=True)
class Asked:
    """One question."""

    method: str
    url: str
    headers: Mapping[str, str]
    """Names in lower case."""


Answer = Callable[[Asked], bytes | Awaitable[bytes]]


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def answered(status: int) -> NoAnswer:
    """What becomes of a response with this status."""
    return NoAnswer(f"it answered {status}", status)


@dataclass
class Place:
    """A URL that can be asked."""

    answer: Answer
    asked: list[Asked] = field(default_factory=list)

    def says(self, value: Any) -> None:
        """From now on: this JSON, these bytes, or this failure."""
        self.answer = _saying(value)


class Upstreams:
    """All places that answer; a question for any other is a mistake of the test."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    def at(self, url: str, value: Any) -> Place:
        """This URL answers with JSON, with bytes, with a failure, or with what a function makes of the question."""
        place = self._places[url] = Place(value if callable(value) else _saying(value))
        return place

    @property
    def asked(self) -> list[Asked]:
        return [asked for place in self._places.values() for asked in place.asked]

    async def answer(self, asked: Asked) -> bytes:
        place = self._places[asked.url]
        place.asked.append(asked)
        found = place.answer(asked)
        return await found if inspect.isawaitable(found) else found


@contextmanager
def asked_upstreams() -> Iterator[Upstreams]:
    """Inside, all questions go to these upstreams."""
    upstreams = Upstreams()

    async def asked(questions: Questions, method: str, url: str, *_: Any) -> bytes:
        headers = {name.lower(): value for name, value in questions.headers.items()}
        return await upstreams.answer(Asked(method, url, headers))

    with mock.patch.object(Questions, "_asked", asked):
        yield upstreams


def _saying(value: Any) -> Answer:
    def answer(_: Asked) -> bytes:
        if isinstance(value, Exception):
            raise value
        return value if isinstance(value, bytes) else body(value)

    return answer
