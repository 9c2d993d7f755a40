"""Rules for every request and response of a drawn case: each is a function named after it.

Rule: a case runs in two proxies at once, of which one remembers no conversation; both get the same requests, each
before an upstream of its own that behaves alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from support.spellings import SPELLINGS, ErrorInReply, ParsedReply

from drawn import beside
from drawn.agent import Agent
from drawn.case import WITHOUT_NUMBERS, Case, Turn
from drawn.sides import Received, Side, logged, started
from drawn.upstream import ARTIFACT, DrawnUpstream
from proxy.shell.resources import forget_what_is_gone
from tools.defects import raise_defects

MOST_SENDS: Final = 3
"""For one answer of the model."""
_PASSING: Final = frozenset(("only observed", "no second send"))
"""Settings with which the upstream's refusals are the client's."""


@dataclass
class Seen:
    """One turn as it went."""

    case: Case
    turn: Turn
    agent: Agent
    key: bytes
    body: bytes
    answer: Received
    side: Side
    reply: ParsedReply | None
    """None: an error."""

    @property
    def upstream(self) -> DrawnUpstream:
        return self.side.upstream

    @property
    def first(self) -> str:
        """What was accepted before the proxy has read anything for the model, as texts."""
        return _texts(self.upstream.accepted[0].json)

    @property
    def last(self) -> str:
        """The last accepted request."""
        return _texts(self.upstream.accepted[-1].json)


def check(case: bytes) -> None:
    """Raises AssertionError for a broken rule; whatever else is raised is a defect, too. Bytes that are no case break
    none."""
    try:
        found = msgspec.json.decode(case, type=Case)
    except (msgspec.DecodeError, RecursionError):
        return
    log = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, logged(log):
        asyncio.run(_played(found, Path(folder)))
    forget_what_is_gone()  # each start keeps all that there is from being collected
    raise_defects(log.getvalue().decode())


async def _played(case: Case, folder: Path) -> None:
    agent, lost = Agent(case, SPELLINGS[case.api]), Counter[bool]()
    cured: set[tuple[bool, str]] = set()
    async with started(case, folder / "warm") as warm, started(case, folder / "cold", remembers=False) as cold:
        for turn in case.turns:
            agent.grow(turn)
            for side in (warm, cold):
                named = side.upstream.named
                await side.begin(turn)
                assert turn.hours != 1 or named <= side.kept, f"gone within an hour: {named - side.kept}"
            for _ in range(1 + agent.asks_again):
                seen = await _asked(case, turn, agent, warm)
                other = await _asked(case, turn, agent, cold)
                for rule in (*_ALWAYS, *(_FOR_REPLIES if seen.reply else _FOR_ERRORS)):
                    rule(seen)
                the_same_bytes_warm_and_cold(seen, other)
                assert await beside.did(agent, warm, seen.key) == await beside.did(agent, cold, seen.key)
                cured = cured | no_reason_is_refused_after_it_was_cured(seen, cured)
                lost[agent.is_other] += seen.reply is None and not turn.fault  # each key learns for itself
            if seen.reply is not None:
                agent.replied(turn, seen.reply)
    assert max(lost.values()) <= most_lost(case), f"{max(lost.values())} turns lost"


async def _asked(case: Case, turn: Turn, agent: Agent, side: Side) -> Seen:
    side.upstream.begin(turn)
    body = agent.request(turn)
    key = b"Bearer sk-other" if agent.is_other else b"Bearer sk-drawn"
    answer = await side.ask(agent.spelling.path, key, body)
    assert answer.is_whole or turn.fault == "broken", f"the response broke off: {answer.status} {answer.text[-300:]}"
    reply = None
    if answer.status == 200 and side.upstream.accepted and turn.fault != "broken":
        with contextlib.suppress(ErrorInReply):
            reply = agent.spelling.reply_in(answer.content, streamed=turn.streamed)
    return Seen(case, turn, agent, key, body, answer, side, reply)


def most_lost(case: Case) -> int:
    """The turns of one key that may end in an error although nothing failed: three sends cure two reasons, of which one
    may be a call that was taken back, and half of what was refused may still be too long."""
    if _PASSING & set(case.settings) or "nothing learned" in case.settings or "histories as they come" in case.settings:
        return len(case.turns) * 2
    has_open_calls = any(not {"aborted", "branch"}.isdisjoint(turn.actions) for turn in case.turns)
    repairs = ("seal" in case.reasons) + has_open_calls  # replicas do not share them
    met = len(case.reasons) + has_open_calls + repairs * case.replicas
    return max(met // 2, case.words in WITHOUT_NUMBERS)


def at_most_three_sends_for_each_answer_of_the_model(seen: Seen) -> None:
    count, accepted = 0, [one.body for one in seen.upstream.accepted]
    for sent in seen.upstream.bodies:
        count += 1
        assert count <= MOST_SENDS, f"{len(seen.upstream.bodies)} sends"
        if sent in accepted:
            count = 0


def every_named_artifact_is_there(seen: Seen) -> None:
    named = seen.upstream.named | set(ARTIFACT.findall(seen.answer.text))
    assert named <= seen.side.kept, named - seen.side.kept


def what_was_accepted_is_what_the_client_gets(seen: Seen) -> None:
    if seen.upstream.accepted and seen.turn.fault != "broken":
        assert seen.reply is not None, f"accepted, but {seen.answer.status}: {seen.answer.text[:500]}"


def a_request_without_edits_goes_byte_for_byte(seen: Seen) -> None:
    began_early = "comments while it waits" in seen.case.settings and seen.turn.streamed  # before there was a plan
    if "x-context-proxy-edits" not in seen.answer.headers and seen.upstream.bodies and not began_early:
        assert seen.upstream.bodies[-1] == seen.body


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
        for sent in seen.upstream.bodies:
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
    bodies, others = warm.upstream.bodies, cold.upstream.bodies
    assert len(bodies) == len(others), (len(bodies), len(others))
    for one, other in zip(bodies, others, strict=True):
        assert one == other, _difference(one, other)
    if warm.turn.streamed and "comments while it waits" in warm.case.settings:
        return  # whether one came before the response depends on the time
    assert warm.answer.status == cold.answer.status
    if warm.reply is not None:  # an error may name the upstream's port
        assert _without_comments(warm.answer.content) == _without_comments(cold.answer.content)


def no_reason_is_refused_after_it_was_cured(seen: Seen, cured: set[tuple[bool, str]]) -> set[tuple[bool, str]]:
    """What this turn has cured, of what a model refuses for good; thinking may be another model's anew. With another
    key it may be another model."""
    again = {(seen.agent.is_other, reason) for reason in seen.upstream.refused if reason != "seal"}
    assert not again & cured, f"{again & cured} again"
    learns = seen.reply is not None and not (_PASSING | {"nothing learned"}) & set(seen.case.settings)
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
