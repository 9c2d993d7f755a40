"""Connections between messages: what stays or goes together, what may replace each other. Units, pairs of calls and
results, user messages that are the output of a tool.

Rule: a tool call and its results are one unit; which units may go depends only on their order and roles. A message is
judged by itself and by the messages before it, never by those that follow.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, TypeVar

from msgspec import Struct

from proxy.core.conversation.message import SYSTEM_ROLES, TOOL_ROLES, Message, ToolCall
from proxy.core.conversation.tracked_message import Edit, TrackedMessage
from proxy.core.text import names_in


class ToolExchange(Struct, frozen=True, gc=False):
    """Messages that stay or go together: an exchange, a user message, a system message, or an assistant message without
    calls."""

    start: int
    stop: int
    role: str
    """Role of its first message; `tool` for system messages in the middle of a conversation, if they are a unit."""
    must_stay: bool = False
    """Whether later messages depend on it."""
    last_user: int = -1
    """The last user message in it that is not a companion; -1 if there is none. In an exchange, it began like tool
    output."""
    calls: bool = False
    reasons: bool = False
    """Whether its first message makes calls, and contains reasoning."""


class Change(Struct, frozen=True):
    """One change by a compaction step: edits of one message, whole units, or images of a message."""

    edits: tuple[Edit, ...] = ()
    units: tuple[ToolExchange, ...] = ()
    redone: TrackedMessage | None = None
    """Another preparation of a message."""


def first_request(units: Sequence[ToolExchange]) -> ToolExchange | None:
    """The first user message: it holds the task, and always stays."""
    return next((unit for unit in units if unit.role == "user"), None)


def last_request(units: Sequence[ToolExchange]) -> ToolExchange | None:
    """The unit of the last user message, which always stays, however that message begins."""
    return next((unit for unit in reversed(units) if unit.last_user >= 0), None)


def separator(units: Sequence[ToolExchange]) -> ToolExchange | None:
    """The unit that must stay between the first user message and the next one: the chat templates of Mistral and Gemma
    refuse two user messages in a row. None if there is none."""
    users = [position for position, unit in enumerate(units) if unit.role == "user"]
    if len(users) < 2:
        return None
    between = [unit for unit in units[users[0] + 1 : users[1]] if unit.role not in SYSTEM_ROLES]
    replies = [unit for unit in between if unit.role == "assistant"] or between
    # It may become the last assistant message: with thinking enabled, Anthropic refuses one whose calls come without.
    if any(unit.reasons for unit in replies):
        replies = [unit for unit in replies if unit.reasons or not unit.calls]
    return replies[-1] if replies else None


def newest_units(units: Sequence[ToolExchange], held_from: int | None = None) -> Sequence[ToolExchange]:
    """The newest unit with the instructions behind it; or all from the one on that `held_from` is in."""
    if held_from is None:
        positions = range(len(units) - 1, -1, -1)
        return units[next((at for at in positions if units[at].role not in SYSTEM_ROLES), -1) :]
    return [unit for unit in units if unit.stop > held_from]


def dialogue(units: Sequence[ToolExchange]) -> list[tuple[ToolExchange, ToolExchange]]:
    """Later user messages before the last one, each with the answer that ends its turn. A turn that does not end with
    words is left out, as is one that has to stay."""
    units = [unit for unit in units if unit.role not in SYSTEM_ROLES]
    questions = [position for position, unit in enumerate(units) if unit.role == "user"][1:]
    turns = [(units[start], units[stop - 1]) for start, stop in pairwise(questions)]
    return [
        (request, answer)
        for request, answer in turns
        if answer.role == "assistant" and not answer.calls and not (request.must_stay or answer.must_stay)
    ]


def removable(
    units: Sequence[ToolExchange],
    held_from: int | None = None,
    spared: Sequence[tuple[ToolExchange, ...]] = (),
) -> list[tuple[ToolExchange, ...]]:
    """The units that may go, the oldest first: not system texts, the first and last user message, and the newest unit.
    If the last user message may be tool output, the last one that is not stays, too. `held_from`: the index of the
    first message that counts as newest, if it is not that of the newest unit. `spared`: turns of `dialogue` whose words
    go last.

    A later user message goes together with the last unit of its turn, and the last unit of the first turn stays if
    another turn follows, so that two user messages never come to follow each other. The message that the newest units
    answer goes as well; if they begin with words, these separate the first user message from the next one.

    >>> roles = ["system", "user", "assistant", "assistant", "user", "assistant", "user"]
    >>> units = [ToolExchange(index, index + 1, role) for index, role in enumerate(roles)]
    >>> [[unit.start for unit in together] for together in removable(units)]
    [[2], [5, 4]]
    >>> [[unit.start for unit in together] for together in removable(units, held_from=5)]
    [[2], [4, 3]]
    """
    newest, separating = newest_units(units, held_from), separator(units)
    always = (first_request(units), separating, last_request(units), *newest)
    staying = {unit.start for unit in (*always, *chain.from_iterable(spared)) if unit is not None}
    last_user = max((unit.start for unit in units if unit.role == "user"), default=-1)
    found: list[tuple[ToolExchange, ...]] = []
    question: tuple[ToolExchange, ...] = ()
    turn_begins = 0

    def end_turn(*more: ToolExchange) -> None:
        if question and len(found) > turn_begins:
            found[-1] += (*question, *more)
        elif question:
            found.append((*question, *more))

    for unit in units:
        if unit.role == "user":
            end_turn()
            question = () if unit.must_stay or unit.start in staying else (unit,)
            turn_begins = len(found)
        elif newest and unit.start >= newest[0].start:
            if question and question[0].start < last_user:
                end_turn(*([] if unit.calls or separating is None or separating.must_stay else [separating]))
            question = ()
        elif unit.role not in SYSTEM_ROLES and not unit.must_stay and unit.start not in staying:
            found.append((unit,))
    return [*found, *spared]


AnyMessage = TypeVar("AnyMessage", bound=Message)


def paired_by_order(
    messages: Iterable[AnyMessage],
    answering: Callable[[AnyMessage, str], AnyMessage],
    cited_by: Callable[[AnyMessage], str] = lambda _: "",
) -> Iterator[AnyMessage]:
    """The messages of an API whose results need not name a call. In a run of results, each answers the first call of
    the message before the run that has no result yet: the one that it cites, or else the first of its own tool, if
    there is one. `answering`: a result, and the id of the call → the result as its answer. `cited_by`: a result → the
    id that it names, which may be that of no call."""
    waiting = _WaitingCalls(())
    for message in messages:
        if message.role not in TOOL_ROLES:
            waiting = _WaitingCalls(message.calls)
        elif message.answers:
            waiting.left.pop(message.answers, None)
        elif waiting.left:
            yield answering(message, waiting.take(cited_by(message), message.name))
            continue
        yield message


class _WaitingCalls:
    """Calls that have no result yet."""

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self.left = OrderedDict((call.id, call.name) for call in calls)
        """The name of each, by its id, in their order."""
        self._by_name: dict[str, deque[str]] = {}
        """The ids of the calls of each tool, with those that have a result."""
        for call in calls:
            self._by_name.setdefault(call.name, deque()).append(call.id)

    def take(self, cited: str, name: str) -> str:
        """The id of the call that a result of this tool answers."""
        own = self._by_name.get(name, deque())
        while own and own[0] not in self.left:
            own.popleft()
        answered = cited if cited in self.left else own[0] if own else next(iter(self.left))
        del self.left[answered]
        return answered


class Unanswered(Struct, frozen=True):
    """Calls of one message that have no result."""

    message: int
    """Index of the message that makes them."""
    after: int
    """Index of the message after which their results belong: the last result of its batch, or the message itself."""
    calls: tuple[ToolCall, ...]


class Unpaired(Struct, frozen=True):
    """Calls and results of a history without their counterparts."""

    orphans: tuple[int, ...] = ()
    """Indexes of results that answer no call of the message before their batch."""
    unanswered: tuple[Unanswered, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.orphans or self.unanswered)

    @property
    def count(self) -> int:
        """How many messages a repair takes out or puts in."""
        return len(self.orphans) + sum(len(found.calls) for found in self.unanswered)


def unpaired(messages: Sequence[Message], *, may_repeat: bool = False) -> Unpaired:
    """Find calls and results without counterparts; `may_repeat`: whether a call may have several results."""
    orphans: list[int] = []
    unanswered: list[Unanswered] = []
    caller, last, calls = -1, -1, dict[str, ToolCall]()
    answered: set[str] = set()

    def close() -> None:
        left = tuple(call for name, call in calls.items() if name not in answered)
        if left:
            unanswered.append(Unanswered(caller, last, left))

    for index, message in enumerate(messages):
        if message.role in TOOL_ROLES:
            name = message.answers
            if name not in calls or (name in answered and not may_repeat):
                orphans.append(index)
            else:
                answered.add(name)
                last = index
        elif not message.is_companion:
            close()
            caller = last = index
            calls, answered = {call.id: call for call in message.calls}, set()
        elif message.role == "assistant" and (message.calls or last == index - 1):
            last = index  # it is one with the message before it, for its upstream, and results come after both
            caller = index if message.calls else caller
            calls |= {call.id: call for call in message.calls}
    close()
    return Unpaired(tuple(orphans), tuple(unanswered))


_MAX_QUOTED_CHARACTERS: Final = 4_000
"""People send longer messages, but most of these are pasted."""
_OPENING_CHARACTERS: Final = 80
_MIN_OPENING_CHARACTERS: Final = 4
_OPENS_OUTPUT: Final = re.compile(
    r"(?:"
    r"<(?:output|returncode|stdout|stderr|results?|observations?|tool_(?:response|result|output)|function_results?|"
    r"command_output|execution_results?|terminal_output|error|warnings?)\b"
    r"|[\[(*#\s]*(?:observations?|call id|(?:tool|command|terminal|shell|execution|function|code)[ _]"
    r"(?:outputs?|results?|response|logs?)|outputs?|results?|stdout|stderr|exit (?:code|status)|return ?code)\b"
    r"[^\n]{0,60}?[:\])]"
    r"|execution result of \["
    r"|```"
    r"|(?:观察|工具(?:输出|结果|返回)|命令输出|执行结果|运行结果|输出|结果)[^\n]{0,20}?[：:]"
    r")",
    re.IGNORECASE,
)
"""How mini-swe-agent, smolagents, OpenHands, SWE-agent, LangChain's ReAct prompt and home-made agent loops begin tool
output, after blanks: two repetitions that both take blanks would try each division of a long run of them."""


def opens_as_output(text: str) -> bool:
    """Whether a text begins like the output of a tool.

    >>> opens_as_output("<returncode>0</returncode>"), opens_as_output("Observation: 3 files")
    (True, True)
    >>> opens_as_output("Please go on.")
    False
    """
    return _OPENS_OUTPUT.match(text, len(text) - len(text.lstrip())) is not None


def opening(text: str) -> str:
    """How a text begins, ignoring numbers: an agent puts the same words before every output. Empty if the text is too
    short to decide.

    >>> opening("[step 12] ran:\\nok") == opening("[step 7] ran:\\nfailed")
    True
    """
    line = text.lstrip().partition("\n")[0][:_OPENING_CHARACTERS]
    return re.sub(r"\d+", "0", line) if len(line) >= _MIN_OPENING_CHARACTERS else ""


def is_quotable(text: str) -> bool:
    """Whether a text was probably written by a person and is short enough that its beginning may be quoted."""
    return 0 < len(text) <= _MAX_QUOTED_CHARACTERS and not opens_as_output(text)


_KNOWN: Final = frozenset({"user", *SYSTEM_ROLES})
_MAX_CHARS: Final = 16_000
"""Limit for a user message, or a later system message: a step may have tried to shorten a longer one, where its words
decide."""


def are_interchangeable(one: TrackedMessage, other: TrackedMessage, task_tokens: int) -> bool:
    """Whether swapping two messages changes nothing for the others: while no step touches them, only their size, their
    names and their first words decide. `task_tokens`: what the first user message keeps when it has to be cut."""
    if one.edits or other.edits or one.following or one.size != other.size:
        return False
    if not one.is_system_text and (
        one.message.role not in _KNOWN or one.size.chars > _MAX_CHARS or one.size.tokens > task_tokens
    ):
        return False
    return _bearing(one.message) == _bearing(other.message)


def _bearing(message: Message) -> tuple[object, ...]:
    """The properties of a message, besides its size, that affect how others are cut."""
    text = next((text for _, text in message.texts()), "")
    joins = message.is_companion, message.must_stay, message.is_marked, message.answers, message.images
    traits = opening(text), opens_as_output(text), frozenset(names_in(message.text()))
    return message.role, *joins, bool(message.calls), *traits
