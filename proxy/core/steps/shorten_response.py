"""A long result in the common tool-response shape becomes a shorter one in the same shape.

Rule: what comes out is JSON that the agent's own code reads as before: `status` says `partial` (an `error` stays, and a
number), a preview stands in `data`, `text` says where the whole is, and every other member keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from proxy.core import jsontext
from proxy.core.edits import Artifact, Edit, Path, Reason
from proxy.core.excerpt import Excerpt, Limits, excerpt
from proxy.core.jsontext import Raw
from proxy.core.measures import count_lines, utf8_length
from proxy.core.notices import Notices

_SHORTENED: Final = frozenset({"data", "text"})
"""The members that give way."""
_PREVIEW_SHARES: Final = (1.0, 0.75, 0.5, 0.15, 0.0)
"""Of the room, tried one after the other: in JSON a quote takes two bytes and a control character six."""


def asks_to_stay(response: Mapping[str, Raw]) -> bool:
    """Whether a response says itself that it is to be left alone."""
    context = jsontext.value(response.get("context", b"null"))
    return isinstance(context, dict) and context.get("truncation_skip") is True


def can_be_shortened(response: Mapping[str, Raw], limits: Limits) -> bool:
    """Whether the limits can be met in this shape: what is neither `data` nor `text` stays, so it must be within them.
    Other JSON may have a `status` and `data`, too, and its bulk elsewhere."""
    staying = sum(len(bytes(raw)) for name, raw in response.items() if name not in _SHORTENED)
    return staying <= limits.max_bytes


def shortened_response(
    index: int,
    path: Path,
    text: str,
    response: Mapping[str, Raw],
    tool: str,
    limits: Limits,
    preview_chars: int | None,
    notices: Notices,
) -> Edit | None:
    """The same shape with a preview for its data, still JSON; `stats`, `context`, `error` and the like keep theirs."""
    opened = jsontext.value(response["data"])
    whole = opened if isinstance(opened, str) else bytes(response["data"]).decode("utf-8", "surrogatepass")
    artifact = Artifact(text.encode("utf-8", "surrogatepass"), tool, "json")
    frame = dict(response) | {"text": jsontext.dump(notices.response_text(artifact))}
    status = jsontext.value(response["status"])
    if isinstance(status, str) and status != "error":  # a number is a status of HTTP, and tells more
        frame["status"] = b'"partial"'
    place = notices.place_of(artifact) if notices.kept else None

    def framed(shown: Excerpt) -> str:
        frame["data"] = jsontext.dump(_cut_data(whole, shown, limits, place))
        return jsontext.join_object(frame).decode("utf-8", "surrogatepass")

    bare = framed(excerpt(whole, Limits(0, 0)))
    left_bytes = max(0, limits.max_bytes - utf8_length(bare))
    left_chars = None if limits.max_chars is None else max(0, limits.max_chars - len(bare))
    room = Limits(limits.max_lines, left_bytes, left_chars, limits.direction).previewed(preview_chars)
    for share in _PREVIEW_SHARES:
        chars = None if room.max_chars is None else int(room.max_chars * share)
        shortened = framed(excerpt(whole, replace(room, max_bytes=int(left_bytes * share), max_chars=chars)))
        if replace(limits, max_lines=len(shortened) + 1).admit(shortened):
            break
    if utf8_length(shortened) >= utf8_length(text):
        return None
    reason = Reason.TRUNCATE_TOOL_OUTPUT
    return Edit(index, path, jsontext.dump(shortened), reason, artifact, tool, len(text), len(shortened))


def _cut_data(whole: str, shown: Excerpt, limits: Limits, place: str | None) -> dict[str, Any]:
    """The `data` of a tool response that was cut."""
    return {
        "truncated": True,
        "truncation": {
            "direction": limits.direction.value,
            "max_lines": limits.max_lines,
            "max_bytes": limits.max_bytes,
            "original_lines": count_lines(whole),
            "original_bytes": utf8_length(whole),
            "kept_lines": shown.kept_lines,
            "kept_bytes": shown.kept_bytes,
            "full_output_path": place,
        },
        "preview": "\n[…]\n".join(part for part in (shown.head, *shown.rescued, shown.tail) if part),
    }
