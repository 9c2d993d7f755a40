"""What is left of a conversation when it is over its room: `python -m bench.recall [--window 8000] [--seed 1]`.

Made-up agents read files; each step uses names that only earlier results hold, mostly recent ones. Every request is
planned as the proxy would plan it, turn by turn. Recall: of the names that the next step uses, the share that still
stands in what is sent. Prefix: of the bytes sent, the share that repeats the head of the request before.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from proxy.config.settings import Settings
from proxy.core.compaction.budget import BudgetRules, budget_for
from proxy.core.compaction.plan import Progress, plan
from proxy.core.conversation.message import Conversation, Message
from proxy.core.conversation.size import Size
from proxy.core.models.agent_tools import AgentFileAccess
from proxy.core.models.profile import ModelProfile
from proxy.core.notices.artifact_access import ArtifactAccess
from proxy.core.tokens.counters import ByteClassCounter
from proxy.shell.planning.pipelines import Pipelines

CONVERSATIONS = 12
TURNS = 80
_WORDS = [
    "parser",
    "state",
    "route",
    "client",
    "stream",
    "budget",
    "window",
    "cache",
    "token",
    "ledger",
    "invoice",
    "order",
    "session",
    "index",
]


@dataclass(frozen=True)
class Turn:
    """One request, and the names that the step after it needs."""

    messages: tuple[Message, ...]
    needed: frozenset[str]


def turns(seed: int) -> Iterator[Turn]:
    """One agent's run."""
    random = Random(seed)
    messages = [_message(role="system", content="You are a coding agent."), _message(role="user", content="Fix it.")]
    seen: list[list[str]] = []
    for number in range(TURNS):
        names = [f"{random.choice(_WORDS)}_{random.choice(_WORDS)}_{random.randrange(10_000)}" for _ in range(12)]
        # Two of three steps go on from the last few results, one from any.
        source = [random.choice(seen[-4:] if random.random() < 0.67 else seen) for _ in range(2)] if seen else []
        needed = frozenset(random.choice(found) for found in source)
        yield Turn(tuple(messages), needed)
        call = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "read_file", "arguments": json.dumps({"path": sorted(needed)})},
        }
        lines = (
            f"{line:>4}    {random.choice(names)} = {random.choice(_WORDS)}({random.randrange(99)})  # {_prose(random)}"
            for line in range(random.choice((10, 30, 60, 200)))
        )
        messages.append(_message(role="assistant", content=None, tool_calls=[call]))
        messages.append(_message(role="tool", tool_call_id=f"call_{number}", content="\n".join(lines)))
        seen.append([name for name in names if name.encode() in messages[-1].raw] or names[:1])


def measure(window_tokens: int, seed: int) -> dict[str, float]:
    """The figures over all conversations, in per cent; only requests over the room count for recall."""
    pipelines = Pipelines(Settings())
    budget = budget_for(ModelProfile("made-up", window_tokens), None, exact=False, rules=BudgetRules())
    way = ArtifactAccess("/kept")
    pipeline = pipelines.pipeline(
        ModelProfile("made-up"), budget, ByteClassCounter(), AgentFileAccess.PAGE, way, keeping=True
    )
    requests = fitting = over = needed = held = sent = same = 0
    for number in range(CONVERSATIONS):
        progress: Progress | None = None
        before = b""
        for turn in turns(seed * 1_000 + number):
            planned, progress = plan(Conversation(turn.messages), Size(), pipeline, progress)
            requests, fitting = requests + 1, fitting + planned.fits
            body = b",".join(planned.messages)
            sent, same = sent + len(body), same + _shared(before, body)
            before = body
            if not budget.admits(planned.before):
                over += 1
                needed += len(turn.needed)
                held += sum(name.encode() in body for name in turn.needed)
    percent = {"fitting": fitting / requests, "recall": held / max(1, needed), "prefix": same / sent}
    return {"requests": requests, "over": over} | {name: round(100 * share, 1) for name, share in percent.items()}


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes at their heads are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _message(**members: Any) -> Message:
    return Message.read(json.dumps(members).encode())


def _prose(random: Random) -> str:
    return " ".join(random.choices(_WORDS, k=6))


def main() -> None:
    """Print the figures for one window, or for two usual ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, action="append", help="tokens; may be repeated (default 32000 and 8000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for window in options.window or (32_000, 8_000):
        print(window, measure(window, options.seed))


if __name__ == "__main__":
    main()
