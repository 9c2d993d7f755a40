"""What holds for every request and response of a drawn case: each rule is a function whose name says it.

Rule: a case runs in two proxies at once, of which one remembers no conversation; both get the same requests, each
before an upstream of its own that behaves alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
import structlog
from starlette.types import ASGIApp, Message
from support.journey import kept_in
from support.scripted_upstream import ScriptedUpstream
from support.spellings import SPELLINGS, ErrorInReply, Said

from drawn.agent import Agent
from drawn.case import SETTINGS, WITHOUT_NUMBERS, Case, Turn
from drawn.upstream import ARTIFACT, DrawnUpstream
from proxy.app import create_app
from proxy.config.settings import Settings
from proxy.demo.agent import raise_defects
from proxy.shell.planning import planner

MOST_SENDS: Final = 3
"""For one answer of the model."""
_PASSING: Final = frozenset(("only observed", "no second send"))
"""Settings with which the upstream's refusals are the client's."""
_FOLDER: Final = "/kept/tool-output"
"""Where agents see artifacts: in notices, so of both proxies the same."""


@dataclass(frozen=True)
class Received:
    """What the client gets."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    is_whole: bool

    @property
    def text(self) -> str:
        return self.content.decode()


@dataclass
class Side:
    """A proxy, and what stands behind it."""

    app: ASGIApp
    upstream: DrawnUpstream
    folder: Path


@dataclass
class Seen:
    """One turn as it went."""

    case: Case
    turn: Turn
    agent: Agent
    body: bytes
    answer: Received
    side: Side
    said: Said | None
    """None: an error."""

    @property
    def upstream(self) -> DrawnUpstream:
        return self.side.upstream

    @property
    def first(self) -> str:
        """What was accepted before the proxy has read anything for the model, as texts."""
        return _texts(json.loads(self.upstream.accepted[0]))

    @property
    def last(self) -> str:
        """What was accepted last."""
        return _texts(json.loads(self.upstream.accepted[-1]))


def check(case: bytes) -> None:
    """Raises AssertionError for a broken rule; whatever else is raised is a defect, too. Bytes that are no case break
    none."""
    try:
        found = msgspec.json.decode(case, type=Case)
    except (msgspec.DecodeError, RecursionError):
        return
    log = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, _logged(log):
        asyncio.run(_played(found, Path(folder)))
    raise_defects(log.getvalue().decode())


async def _played(case: Case, folder: Path) -> None:
    agent, lost = Agent(case, SPELLINGS[case.api]), Counter[bool]()
    cured: set[tuple[bool, str]] = set()
    async with _side(case, folder / "warm") as warm, _side(case, folder / "cold", remembers=False) as cold:
        for turn in case.turns:
            agent.grow(turn)
            for _ in range(1 + agent.asks_again):
                seen = await _asked(case, turn, agent, warm)
                other = await _asked(case, turn, agent, cold)
                for rule in (*_ALWAYS, *(_FOR_REPLIES if seen.said else _FOR_ERRORS)):
                    rule(seen)
                the_same_bytes_warm_and_cold(seen, other)
                cured = cured | no_reason_is_refused_after_it_was_cured(seen, cured)
                lost[agent.is_other] += seen.said is None and not turn.fault  # each key learns for itself
            if seen.said is not None:
                agent.replied(turn, seen.said)
    assert max(lost.values()) <= most_lost(case), f"{max(lost.values())} turns lost"


async def _asked(case: Case, turn: Turn, agent: Agent, side: Side) -> Seen:
    side.upstream.begin(turn)
    body = agent.request(turn)
    key = b"Bearer sk-other" if agent.is_other else b"Bearer sk-drawn"
    answer = await _called(side.app, agent.spelling.path, key, body)
    assert answer.is_whole or turn.fault == "broken", f"the response broke off: {answer.status} {answer.text[-300:]}"
    said = None
    if answer.status == 200 and side.upstream.accepted and turn.fault != "broken":
        with contextlib.suppress(ErrorInReply):
            said = agent.spelling.said(answer.content, streamed=turn.streamed)
    return Seen(case, turn, agent, body, answer, side, said)


async def _called(app: ASGIApp, path: str, key: bytes, body: bytes) -> Received:
    """A response of an application, without a socket between."""
    messages = [{"type": "http.request", "body": body}]
    sent: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"proxy"), (b"content-type", b"application/json"), (b"authorization", key)]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app({**scope, "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}, receive, send)
    start, *pieces = sent
    content = b"".join([piece.get("body", b"") for piece in pieces])
    named = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Received(start["status"], named, content, is_whole=bool(pieces) and not pieces[-1].get("more_body"))


def most_lost(case: Case) -> int:
    """The turns of one key that may end in an error although nothing failed: three sends cure two reasons, of which one
    may be a call that was taken back, and half of what was refused may still be too long."""
    if _PASSING & set(case.settings) or "nothing learned" in case.settings or "histories as they come" in case.settings:
        return len(case.turns) * 2
    has_open_calls = any(not {"aborted", "branch"}.isdisjoint(turn.actions) for turn in case.turns)
    return max((len(case.reasons) + has_open_calls) // 2, case.words in WITHOUT_NUMBERS)


def at_most_three_sends_for_each_answer_of_the_model(seen: Seen) -> None:
    count = 0
    for sent in seen.upstream.sent:
        count += 1
        assert count <= MOST_SENDS, f"{len(seen.upstream.sent)} sends"
        if sent in seen.upstream.accepted:
            count = 0


def every_named_artifact_is_there(seen: Seen) -> None:
    kept = kept_in(seen.side.folder / "tool-output").keys()
    member = seen.agent.spelling.member  # the description of our tool names an example
    for text in (*(json.dumps(json.loads(sent)[member]) for sent in seen.upstream.sent), seen.answer.text):
        assert set(ARTIFACT.findall(text)) <= kept, set(ARTIFACT.findall(text)) - kept


def what_was_accepted_is_what_the_client_gets(seen: Seen) -> None:
    if seen.upstream.accepted and seen.turn.fault != "broken":
        assert seen.said is not None, f"accepted, but {seen.answer.status}: {seen.answer.text[:500]}"


def a_request_without_edits_goes_byte_for_byte(seen: Seen) -> None:
    began_early = "comments while it waits" in seen.case.settings and seen.turn.streamed  # before there was a plan
    if "x-context-proxy-edits" not in seen.answer.headers and seen.upstream.sent and not began_early:
        assert seen.upstream.sent[-1] == seen.body


def a_reply_without_rounds_comes_byte_for_byte(seen: Seen) -> None:
    if len(seen.upstream.accepted) == 1 and seen.turn.fault != "broken":
        assert _without_comments(seen.answer.content) == seen.upstream.answers[-1]


def the_task_arrives(seen: Seen) -> None:
    assert seen.agent.task[:60] in seen.last


def the_system_text_arrives_whole(seen: Seen) -> None:
    assert seen.agent.system in seen.last


def the_newest_words_arrive(seen: Seen) -> None:
    for line in seen.agent.words:
        assert line in seen.last, f"{line!r} is missing"


def something_of_the_newest_result_arrives(seen: Seen) -> None:
    assert seen.agent.newest in seen.first, f"nothing of {seen.agent.newest!r}"


def what_was_valid_stays_valid(seen: Seen) -> None:
    complaints = seen.agent.spelling.complaints
    if not complaints(json.loads(seen.body)):
        for sent in seen.upstream.sent:
            assert not complaints(json.loads(sent)), complaints(json.loads(sent))


def an_error_says_what_it_is(seen: Seen) -> None:
    if seen.turn.fault in ("reset", "broken", "empty"):
        return
    text = seen.answer.text
    assert ('"error"' if seen.case.api == "ollama" else '"message"') in text or seen.turn.fault, text
    if seen.answer.status != 200:
        error = json.loads(text)["error"]
        assert error if isinstance(error, str) else error["message"], text


def the_same_bytes_warm_and_cold(warm: Seen, cold: Seen) -> None:
    assert len(warm.upstream.sent) == len(cold.upstream.sent), (len(warm.upstream.sent), len(cold.upstream.sent))
    for one, other in zip(warm.upstream.sent, cold.upstream.sent, strict=True):
        assert one == other, _difference(one, other)
    if warm.turn.streamed and "comments while it waits" in warm.case.settings:
        return  # whether one came before the response depends on the time
    assert warm.answer.status == cold.answer.status
    if warm.said is not None:  # an error may name the upstream's port
        assert _without_comments(warm.answer.content) == _without_comments(cold.answer.content)


def no_reason_is_refused_after_it_was_cured(seen: Seen, cured: set[tuple[bool, str]]) -> set[tuple[bool, str]]:
    """What this turn has cured, of what a model refuses for good; thinking may be another model's anew. With another
    key it may be another model."""
    again = {(seen.agent.is_other, reason) for reason in seen.upstream.refused if reason != "seal"}
    assert not again & cured, f"{again & cured} again"
    learns = seen.said is not None and not (_PASSING | {"nothing learned"}) & set(seen.case.settings)
    return again if learns else set()


_ALWAYS: Final[tuple[Callable[[Seen], None], ...]] = (
    at_most_three_sends_for_each_answer_of_the_model,
    every_named_artifact_is_there,
    what_was_accepted_is_what_the_client_gets,
    a_request_without_edits_goes_byte_for_byte,
    a_reply_without_rounds_comes_byte_for_byte,
    what_was_valid_stays_valid,
)
_FOR_REPLIES: Final[tuple[Callable[[Seen], None], ...]] = (
    the_task_arrives,
    the_system_text_arrives_whole,
    the_newest_words_arrive,
    something_of_the_newest_result_arrives,
)
_FOR_ERRORS: Final[tuple[Callable[[Seen], None], ...]] = (an_error_says_what_it_is,)


@contextlib.asynccontextmanager
async def _side(case: Case, folder: Path, *, remembers: bool = True) -> AsyncIterator[Side]:
    """A proxy without a socket of its own before an upstream with one. `remembers`: whether conversations."""
    upstream = DrawnUpstream(case, SPELLINGS[case.api])
    async with ScriptedUpstream(upstream) as server:
        settings = _settings(case, folder, server.base_url)
        with contextlib.nullcontext() if remembers else mock.patch.object(planner, "MEMORY_BYTES", -1):
            app = create_app(settings)
        async with app.router.lifespan_context(app):
            await asyncio.sleep(0)
            fitted = app.state.current.generation.services.fitted
            await fitted._routes.default.relay._models.discovery.answered()  # or what is known depends on the time
            yield Side(app, upstream, folder)


def _settings(case: Case, folder: Path, base_url: str) -> Settings:
    found: dict[str, dict[str, Any]] = {
        "artifacts": {"agent_path": _FOLDER},
        "decisions": {"stored": 0},
        "log": {"format": "json", "level": "error"},
    }
    for name in case.settings:
        for section, members in SETTINGS[name].items():
            if isinstance(members, Mapping):
                found.setdefault(section, {}).update(members)
            else:
                found[section] = members
    if of_model := found.pop("models", {}):
        window = of_model.pop("context_window", None)
        of_model |= {"context_window": int(window * case.window)} if window else {}
        found["models"] = [{"match": "*", **of_model}]  # type: ignore[assignment] # the one section that is a list
    return Settings(upstream={"base_url": base_url}, data_dir=folder, **found)


@contextlib.contextmanager
def _logged(log: io.BytesIO) -> Iterator[None]:
    """What the proxies of this block log; then it is as before."""
    handlers, stdout = logging.getLogger().handlers[:], sys.stdout
    sys.stdout = io.TextIOWrapper(log, write_through=True)
    try:
        yield
    finally:
        sys.stdout.detach()
        sys.stdout = stdout
        logging.getLogger().handlers[:] = handlers
        structlog.reset_defaults()


def _texts(value: Any) -> str:
    """All texts of a body, decoded."""
    match value:
        case str():
            return value
        case list():
            return "\n".join(map(_texts, value))
        case dict():
            return "\n".join(map(_texts, value.values()))
    return ""


def _without_comments(body: bytes) -> bytes:
    """A stream without the comments that are sent while its client waits."""
    return b"\n\n".join(event for event in body.split(b"\n\n") if not event.startswith(b":"))


def _difference(one: bytes, other: bytes) -> str:
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"at {at}: {one[max(0, at - 150) : at + 150]!r} against {other[max(0, at - 150) : at + 150]!r}"
