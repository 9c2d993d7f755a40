"""Generates `docs/refusals.md` from the table of cures."""

from __future__ import annotations

from typing import Final

from proxy.core.models import Lesson, facts
from proxy.core.overflow import CURES, MAX_SENDS, Row

HEAD: Final = f"""# Refusals

What the proxy does when an upstream refuses a request. Written by `make docs/refusals.md` from the table of cures.

The rows are tried from top to bottom. The client sees none of it: a request is sent {MAX_SENDS} times at most, never
twice for one reason, and each time smaller than before, or asking for less. A second refusal that names another reason
proves the first cure. `cause` and `cure` are the names in [the log](log.md).

| cause | it means | recognised by | cure | what is sent | remembered |
|---|---|---|---|---|---|
"""
RECOGNISED: Final = {
    "silence": "a success without a reply, or a stream that breaks before its content, of a request near its window",
    "limit": "*Too many images and documents: 101 + 0 > 100*, *image exceeds 5 MB maximum*, *array too long*, *String "
    "should have at most 6000 characters*: a number beside what it limits; a prompt with media that is counted "
    "twice as long as we do: some count base64 as text",
    "reply": "*requested 32000 output tokens and your prompt contains 9000*: numbers that prove that the prompt fits; "
    "*supports at most 16384 completion tokens*",
    "prompt": "*maximum context length is 8192 tokens*, *prompt is too long*, in ten languages, with numbers "
    "or without; *Limit 6000, Requested 14000* of a rate that one request exceeds alone",
    "bytes": "413, *Request Entity Too Large*, *request_too_large*, with the bytes that are allowed or without",
    "silent_cut": "a success whose usage counts far less than was sent",
    "media": "*does not support image input*, *image_url is not supported*, *images in tool results*; *only "
    "supported by certain models*, which is believed the second time",
    "history": "*tool_use ids were found without tool_result blocks*, *Invalid signature in thinking block*, "
    "*tool_use.name: String should match pattern*, *Unknown parameter: 'input[5].status'*",
    "cut_results": "*not valid JSON* for a request with cut tool results that would also fit whole",
    "our_tool": "a 400 or 422 about a member, or without a reason, of a request with the proxy's own tool",
    "edit": "any other 400 or 422 of an edited request that would also fit as it came",
    "no_words": "an error without a message, or a second success without a reply, of a request near its window",
}
"""Words of upstreams, by cause."""
SENT: Final = {
    "silence": "the same once more",
    "limit": "images and files over it described, whole exchanges left out, or one text cut, the oldest first",
    "reply": "the same with a lower reply limit",
    "prompt": "a prompt under the limit; where none is stated, of the size that was accepted before, or six tenths",
    "bytes": "a body under the limit; where none is stated, half of it",
    "silent_cut": "a prompt that the upstream reads whole",
    "media": "these kinds of media as text",
    "history": "results without calls left out, calls without results answered, sealed reasoning left out, ids and "
    "names in calls made to fit, other members left out; tools stay as they came",
    "cut_results": "the request as it came",
    "our_tool": "the same without the tool",
    "edit": "the request as it came",
    "no_words": "a prompt of the size that was accepted before, or six tenths",
}
"""What the cure sends, by cause."""
NAMES: Final = {
    facts.WINDOW: "the window",
    facts.LATE: "one that ran out after content had begun",
    facts.INPUT: "the most tokens of a prompt",
    facts.CHARS: "its most characters",
    facts.SEARCH: "what was refused and what was accepted",
    facts.RATE: "the tokens per minute",
    facts.AT_MOST: "that limit",
    facts.CUT_TO: "the window to which it cuts",
    facts.REFUSES: "the kinds of media, or that one content",
    facts.RESULTS_HOLD_TEXT: "that results hold no media",
    facts.CUT_RESULTS_REFUSED: "that results stay whole",
    facts.REFUSES_OUR_TOOL: "that the tool is refused",
}
"""What is remembered, by the names of lessons."""


def render() -> str:
    """The page."""
    return HEAD + "\n".join(map(_line, CURES)) + "\n"


def _line(row: Row) -> str:
    kept = "; ".join(f"{NAMES[name]}, {_how_long(name)}" for name in row.learned) or "nothing of the model"
    cure = f"`{row.kind.value}` | {SENT[row.cause]}"
    return f"| `{row.cause}` | {row.words} | {RECOGNISED[row.cause]} | {cure} | {kept} |"


def _how_long(name: str) -> str:
    days = facts.lapses_at(name, Lesson(1, 0.0)) / facts.DAY
    return "for a day" if days == 1 else f"for {days:.0f} days"
