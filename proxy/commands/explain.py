"""`context-proxy explain`: what would become of each message of a request. It prints `/explain` of the operator's API.
With `--diff`, also the text of each message that changes, before and after.

Rule: what people get is bounded: messages with the same fate share a line, and long stretches show their ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Any, Final

from proxy.commands.screen import complain, plain, show
from proxy.config import Settings
from proxy.core.conversation import Message
from proxy.errors import MalformedRequest
from proxy.shell.artifacts import AccessResolver, ArtifactStore, create_folder
from proxy.shell.models import ModelResolver
from proxy.shell.operator import Explainer, Explanation
from proxy.shell.planning import Pipelines, Planner
from proxy.shell.resources import configure_logging
from proxy.shell.telemetry import Block

FITS, DOES_NOT_FIT, NOT_READ = 0, 1, 2
"""The exit status."""
SHOWN_LINES: Final = 12
"""Lines of each stretch of a difference: half from its beginning, half from its end."""
SAME_LINES: Final = 2
"""Unchanged lines before and after it."""
LINE_CHARS: Final = 400
"""Limit of a line: outputs in one line of 200 KB are common."""


def create_explainer(settings: Settings) -> Explainer:
    """An explainer that needs no running proxy; nothing is written."""
    folder, kept = create_folder(settings), settings.artifacts
    store = ArtifactStore(folder, retention_days=kept.retention_days, max_bytes=kept.max_bytes)
    here = AccessResolver(kept, folder.place_of("")).here
    each = map(settings.before, settings.named_upstreams.values())
    planners = [Planner(Pipelines(alone), ModelResolver(alone)) for alone in each]
    return Explainer(settings, planners, store.place_of, here)


def explain(settings: Settings, file: str, model: str | None, *, as_json: bool, as_diff: bool) -> int:
    """Explain the request in a file, or in standard input for `-`, with the limits that its upstream states now; the
    exit status."""
    configure_logging(settings.log, sys.stderr)
    try:
        body = _read(file, settings.server.max_body_bytes)
        explanation = asyncio.run(create_explainer(settings).explain(body, model, asks=True))
    except OSError as error:
        return complain(f"{file}: {error.strerror}", NOT_READ)
    except MalformedRequest as error:
        return complain(f"{'standard input' if file == '-' else file}: {error.message}", NOT_READ)
    reason = explanation.unlisted
    upstream = {**explanation.described["upstream"], "listed": reason is None, "reason": reason}
    found: dict[str, Any] = {**explanation.described, "upstream": upstream}
    if as_diff:
        print("\n".join(difference(explanation, found["messages"])))
    else:
        show(found if as_json else {**found, "messages": list(_rows(found["messages"]))}, as_json=as_json)
    if not as_json:
        print(_verdict(explanation))
    return FITS if explanation.described["problem"] is None else DOES_NOT_FIT


def _read(file: str, max_bytes: int) -> bytes:
    """Raises OSError, and MalformedRequest for input that the proxy would not read."""
    with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as opened:
        body = opened.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise MalformedRequest(f"more than {max_bytes:,} bytes (server.max_body_bytes)")
    return body


def _rows(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """A row for each run of messages with the same fate; a message that is sent changed is alone."""

    def fate(block: Block) -> tuple[object, ...]:
        return block.reasons, block.artifacts, block.message if block.reasons and block.tokens_after else None

    for _, run in groupby(blocks, fate):
        together = list(run)
        one, last = together[0], together[-1]
        is_alone = one is last
        yield {
            "message": _numbers(one.message, last.message),
            "role": one.role if is_alone else f"{len(together)} messages",
            "tool": one.tool if is_alone else "",
            "tokens_before": sum(block.tokens_before for block in together),
            "tokens_after": sum(block.tokens_after for block in together),
            "reasons": one.reasons,
            "artifacts": one.artifacts,
        }


def _verdict(explanation: Explanation) -> str:
    if explanation.described["problem"] is not None:
        return f"It would be refused: {plain(explanation.described['problem'] or '')}"
    if not explanation.planned.plan.fits:
        return "That is more than the prompt budget, by an estimate: the upstream decides."
    if not explanation.planned.changed:
        return "It would be forwarded unchanged."
    return f"It would be sent with {explanation.planned.tokens_after:,} tokens."


def difference(explanation: Explanation, blocks: Sequence[Block]) -> Iterator[str]:
    """What is left out, and the text of what is sent changed or put in, as a unified difference of each message."""
    plan, received = explanation.planned.plan, explanation.planned.request.conversation.messages
    raw, raw_sent = [message.raw for message in received], [message.raw for message in plan.sent]
    for what, begin, end, put, stop in difflib.SequenceMatcher(None, raw, raw_sent).get_opcodes():
        if what == "equal":
            yield from _together(range(begin, end), blocks, "unchanged")
            continue
        left_out = [at for at in range(begin, end) if not blocks[at].tokens_after]
        changed = [at for at in range(begin, end) if blocks[at].tokens_after]
        yield from _together(left_out, blocks, "left out")
        for at, message in zip_longest(changed, plan.sent[put:stop]):
            yield _title(at, blocks, message)
            before = None if at is None else received[at]
            yield from _stretches(*([] if one is None else one.text().splitlines() for one in (before, message)))


def _together(indices: Sequence[int], blocks: Sequence[Block], fate: str) -> Iterator[str]:
    if indices:
        tokens = sum(blocks[at].tokens_before for at in indices)
        why = "".join(f" ({reason})" for reason in blocks[indices[0]].reasons)
        yield f"messages {_numbers(indices[0], indices[-1])}: {fate}{why}, {tokens:,} tokens"


def _numbers(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def _title(at: int | None, blocks: Sequence[Block], sent: Message | None) -> str:
    if at is None:
        return plain(f"put in: {sent.role if sent is not None else ''}")
    one = blocks[at]
    sizes = f"{one.tokens_before:,} to {one.tokens_after:,} tokens"
    return plain(f"message {at}: {', '.join(filter(None, (one.role, one.tool, sizes, *one.reasons)))}")


def _stretches(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Each stretch of removed, added or unchanged lines, or its ends."""
    compared = difflib.unified_diff(before, after, n=SAME_LINES, lineterm="")
    for _, run in groupby(islice(compared, 2, None), lambda line: line[0]):
        stretch = list(run)
        half = SHOWN_LINES // 2
        if len(stretch) > SHOWN_LINES:
            stretch[half:-half] = [f"... {len(stretch) - SHOWN_LINES:,} lines"]
        for line in map(plain, stretch):
            rest = len(line) - LINE_CHARS
            yield line if rest <= 0 else f"{line[:LINE_CHARS]} ... {rest:,} characters"
