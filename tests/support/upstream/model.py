"""A model server that does what a script says: the limits it checks and in what order, what its model says, and how
either is delivered.

    ScriptedModel([valid, Over("images", 20, "a request carries at most {limit} images")], says=working(8))

Rule: the first rule that has an answer gives it, else the model speaks. Nothing waits for time to pass.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.errors import MalformedRequest
from support.upstream.faces import FACES
from support.upstream.replies import Answer, Json, Reply, Usage, as_json
from support.upstream.script import Face, Rule, Says, Scene, Sent, words
from support.upstream.sockets import CHUNKED, LAST_CHUNK, Connection, Request, chunk


@dataclass
class ScriptedModel:
    """A model behind one or more APIs; the script of a `SocketServer`."""

    rules: Sequence[Rule] = ()
    says: Says = field(default_factory=lambda: words("Done."))
    faces: Sequence[Face] = ()
    """None named: all of them."""
    counts: float | Callable[[Json, bytes], int] = 1.0
    """What it counts for a token of ours, or how it counts a request, whose body is the second."""
    reports: float | Usage | None = 1.0
    """The prompt's tokens in `usage`, as a share of what it counted, or all of it; None: it reports nothing."""
    cuts_at: int | None = None
    """Tokens at which it leaves out the beginning without a word."""
    lists: Sequence[Json] = ({"id": "m", "object": "model"},)
    """Its list of models."""
    delivers: Callable[[Sent, Answer], Answer | Scene] = lambda _, answer: answer
    """How an answer goes out."""
    beside: Callable[[str, str, bytes], Answer | None] | None = None
    """Answers what else is asked, by method, path and body."""
    watches: Callable[[], Mapping[str, bytes]] | None = None
    """Reads files at each arrival."""
    sent: list[Sent] = field(default_factory=list)
    """What arrived."""
    others: list[str] = field(default_factory=list)
    """Method and path of what else was asked."""
    posted: list[bytes] = field(default_factory=list)
    """Of that, the bodies that were posted."""
    held: dict[str, list[Any]] = field(default_factory=dict)
    """Response → the items that lead to it, and its own."""
    _scenes: list[Scene] = field(default_factory=list)
    _issued: list[list[Json]] = field(default_factory=list)
    _cached: int = 0
    _count: int = 0

    def __post_init__(self) -> None:
        faces = self.faces or tuple(FACES.values())
        self._by_path = {path: face for face in faces for path in (face.path, *face.also)}
        self._counting = {face.counted_at: face for face in faces if face.counted_at}

    def plays(self, *scenes: Scene) -> None:
        """Forget what was seen, and answer the next requests with these scenes, before any rule."""
        self.sent, self._scenes = [], list(scenes)

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.sent]

    @property
    def last(self) -> Sent:
        return self.sent[-1]

    @property
    def complaints(self) -> list[str]:
        return [complaint for sent in self.sent for complaint in sent.complaints]

    @property
    def refusals(self) -> int:
        return sum(one.refused for one in self.sent)

    @property
    def accepted(self) -> list[Sent]:
        return [one for one in self.sent if one.answer is not None and not one.refused]

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.request()
            method, target, _ = request.line.decode("latin-1").split(" ", 2)
            found = await asyncio.to_thread(self.answer, method, target.partition("?")[0], request)
            if isinstance(found, Answer):
                await deliver(connection, found, is_head=method == "HEAD")
            else:
                await found(connection, request)

    def answer(self, method: str, path: str, request: Request) -> Answer | Scene:
        """What a request is answered with."""
        face = self._by_path.get(path) if method == "POST" else None
        if method == "POST" and path in self._counting:
            counting = self._counting[path]
            self.others.append(f"{method} {path}")
            return counting.counted(self._tokens(counting, json.loads(request.body), request.body))
        if face is None:
            self.others.append(f"{method} {path}")
            self.posted += [request.body] if method == "POST" else []
            return self._beside(method, path, request.body)
        return self._taken(face, path, request)

    def _taken(self, face: Face, path: str, request: Request) -> Answer | Scene:
        is_packed = request.values(b"content-encoding") == [b"gzip"]
        self._count += 1
        sent = Sent(face, path, request.headers, request.body, {}, 0, self._count, tuple(self._issued))
        sent.files = self.watches() if self.watches else {}
        self.sent.append(sent)
        found: Answer | Scene
        try:
            sent.json = face.parse(gzip.decompress(request.body) if is_packed else request.body)
        except (ValueError, MalformedRequest):
            found = face.error("We could not parse the JSON body of your request.")
        else:
            if face.held_by and (held := self.held.get(str(sent.json.get(face.held_by)))) is not None:
                sent.json, sent.is_held = sent.json | {face.member: [*held, *face.items(sent.json)]}, True
            sent.tokens = self._tokens(face, sent.json, request.body)
            found = self._scenes.pop(0) if self._scenes else self._answered(sent)
        if not isinstance(found, Answer):
            return found
        sent.answer = found
        return self.delivers(sent, found)

    def _tokens(self, face: Face, body: Json, raw: bytes) -> int:
        return int(face.count(body) * self.counts) if isinstance(self.counts, float) else self.counts(body, raw)

    def _answered(self, sent: Sent) -> Answer | Scene:
        face, named = sent.face, sent.json.get(sent.face.held_by) if sent.face.held_by else None
        if named and named not in self.held:
            text = f"Previous response with id '{named}' not found."
            return face.error(text, code="previous_response_not_found", param=face.held_by)
        found = next((found for rule in self.rules if (found := rule(sent)) is not None), None)
        if found is not None:
            return found
        reply = self.says(sent)
        answer, issued = face.answered(sent.json, reply, self._usage(sent, reply), sent.number)
        self._issued.append(issued)
        if face.held_by and sent.json.get("store") is not False:
            self.held[f"resp_{sent.number:024d}"] = [*face.items(sent.json), *issued]
        return answer

    def _usage(self, sent: Sent, reply: Reply) -> Usage | None:
        if not isinstance(self.reports, float):
            return self.reports
        shown = int(min(sent.tokens, self.cuts_at or sent.tokens) * self.reports)
        cached, self._cached = min(self._cached, shown), shown
        return Usage(shown, cached, sent.face.count({sent.face.member: [reply.text]}))

    def _beside(self, method: str, path: str, body: bytes) -> Answer:
        if self.beside and (found := self.beside(method, path, body)) is not None:
            return found
        if path == "/v1/models":
            return as_json({"object": "list", "data": [*self.lists]})
        return as_json({"error": {"message": f"no {path} here", "type": "not_found_error"}}, 404)


async def deliver(connection: Connection, answer: Answer, *, is_head: bool = False) -> None:
    """Send an answer: a stream in chunks of one event; the body of an answer to HEAD is left out."""
    if answer.is_stream:
        await connection.send(CHUNKED.replace(b"text/event-stream", answer.content_type.encode()))
        for piece in answer.pieces():
            await connection.send(chunk(piece))
        await connection.send(LAST_CHUNK)
        return
    lines = [f"HTTP/1.1 {answer.status} As Said", f"content-type: {answer.content_type}"]
    lines += [f"content-length: {len(answer.body)}", *(f"{name}: {text}" for name, text in answer.headers.items())]
    await connection.send("\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else answer.body))


def breaking_off(answer: Answer) -> Scene:
    """Half of the answer, and a reset."""

    async def scene(connection: Connection, _: Request) -> None:
        await connection.send(CHUNKED.replace(b"text/event-stream", answer.content_type.encode()))
        await connection.send(chunk(answer.body[: len(answer.body) // 2]))
        connection.reset()

    return scene


async def resetting(connection: Connection, _: Request) -> None:
    """A connection that breaks before a byte of an answer."""
    connection.reset()
