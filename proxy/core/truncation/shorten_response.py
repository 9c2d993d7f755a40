"""A long result in the common tool-response shape becomes a shorter one in the same shape.

Rule: the result stays JSON that the agent's own code reads as before: `status` becomes `partial` (`error` and numbers
are kept), `data` holds a preview of the bulk, `text` says where the whole is, and the other members keep their bytes
while there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from proxy.core.artifact import Artifact
from proxy.core.conversation.edit import Edit, Reason
from proxy.core.conversation.message import Address
from proxy.core.notices.pages import quoted
from proxy.core.notices.writing import Notices
from proxy.core.text import jsontext
from proxy.core.text.excerpt import Direction, Excerpt, ExcerptLimits, excerpt
from proxy.core.text.jsontext import Raw
from proxy.core.text.measures import count_lines, utf8_length

_SHORTENED: Final = ("data", "text")
"""The members that may contain the bulk."""
_ASIDE_SHARE: Final = 0.1
"""Of the room: the shorter of the two stays if it takes no more than this."""
_FRAME_SHARE: Final = 0.6
"""Of the room: members beside the bulk stay while all of them together take no more than this."""
_SCALES: Final = (1.0, 0.97, 0.9, 0.75, 0.5, 0.15, 0.0)
"""Of the room for a preview as its own draft measured it, tried in turn: in JSON a quote takes two bytes and a control
character six, and they are not evenly spread over a text."""


def asks_to_stay(response: Mapping[str, Raw]) -> bool:
    """Whether a response itself asks to be left alone."""
    context = jsontext.value(response.get("context", b"null"))
    return isinstance(context, dict) and context.get("truncation_skip") is True


def has_its_bulk_in_shape(response: Mapping[str, Raw]) -> bool:
    """Whether most of a response is its `data` or its `text`. Other JSON may also have a `status` and `data` but its
    bulk elsewhere: it is cut as text."""
    sizes = {name: len(bytes(raw)) for name, raw in response.items()}
    return 2 * sum(sizes.get(name, 0) for name in _SHORTENED) >= sum(sizes.values())


def shortened_response(
    index: int,
    at: Address,
    text: str,
    response: Mapping[str, Raw],
    tool: str,
    limits: ExcerptLimits,
    preview_chars: int | None,
    notices: Notices,
    reason: Reason,
) -> Edit | None:
    """The same shape with a preview of its bulk; None if that would save nothing."""
    artifact = Artifact(text.encode("utf-8", "surrogatepass"), tool, "json")
    shortening = _Shortening.of(response, limits, artifact, notices)
    shortened = shortening.fitted(preview_chars)
    if utf8_length(shortened) >= utf8_length(text):
        return None
    return Edit(index, at, shortened, reason, artifact, tool, len(text), len(shortened))


class _Shortening(Struct, frozen=True):
    """One response while it is being shortened."""

    bulk: str
    """The text to preview: that of `data` or of `text`, whichever is longer."""
    beside: Mapping[str, Any]
    """The other members of the new `data`: short data if `text` was the bulk."""
    frame: Mapping[str, bytes]
    """The members of the new response, with `data` still without a preview."""
    limits: ExcerptLimits
    place: str | None
    is_bare: bool
    """Whether there is not even room for the numbers of the cut."""

    @classmethod
    def of(
        cls, response: Mapping[str, Raw], limits: ExcerptLimits, artifact: Artifact, notices: Notices
    ) -> _Shortening:
        """With as many of the other members as there is room for."""
        name = max(_SHORTENED, key=lambda name: len(bytes(response.get(name, b""))))
        opened = jsontext.value(response[name])
        is_text = isinstance(opened, str)
        bulk = opened if is_text else bytes(response[name]).decode("utf-8", "surrogatepass")
        if not is_text:  # JSON ends with brackets
            limits = replace(limits, direction=Direction.HEAD)
        place = notices.place_of(artifact) if notices.kept else None
        for frame, beside, is_bare in _frames(response, name, limits, notices.response_text(artifact)):
            found = cls(bulk, beside, frame, limits, place, is_bare)
            if utf8_length(found.framed(_nothing_of(bulk))) <= limits.max_bytes * _FRAME_SHARE:
                break
        return found

    def fitted(self, preview_chars: int | None) -> str:
        """The response with the longest preview that its limits allow."""
        bare = self.framed(_nothing_of(self.bulk))
        left_bytes = max(0, self.limits.max_bytes - utf8_length(bare))
        left_chars = None if self.limits.max_chars is None else max(0, self.limits.max_chars - len(bare))
        room = replace(self.limits, max_bytes=left_bytes, max_chars=left_chars).previewed(preview_chars)
        draft = excerpt(self.bulk, room)
        written = jsontext.dump(_preview(draft))
        share = min(1.0, (draft.kept_bytes + 1) / max(1, len(written)))
        for scale in _SCALES:
            chars = None if room.max_chars is None else int(room.max_chars * share * scale)
            found = self.framed(
                excerpt(self.bulk, replace(room, max_bytes=int(left_bytes * share * scale), max_chars=chars))
            )
            if replace(self.limits, max_lines=len(found) + 1).admit(found):
                break
        return found

    def framed(self, shown: Excerpt) -> str:
        """The response with this excerpt as its preview."""
        data: dict[str, Any] = {**self.beside, "truncated": True}
        if not self.is_bare:
            data["truncation"] = {
                "direction": self.limits.direction.value,
                "max_lines": self.limits.max_lines,
                "max_bytes": self.limits.max_bytes,
                "original_lines": shown.total_lines,
                "original_bytes": shown.total_bytes,
                "kept_lines": shown.kept_lines,
                "kept_bytes": shown.kept_bytes,
                "full_output_path": self.place,
            }
        if not self.is_bare or shown.kept_bytes:
            data["preview"] = _preview(shown)
        return jsontext.join_object({**self.frame, "data": jsontext.dump(data)}).decode("utf-8", "surrogatepass")


def _frames(
    response: Mapping[str, Raw], bulk: str, limits: ExcerptLimits, note: str
) -> Iterator[tuple[Mapping[str, bytes], Mapping[str, Any], bool]]:
    """Members of the new response, and what is put beside the preview, from everything to the minimum."""
    aside_bytes = limits.max_bytes * _ASIDE_SHARE
    said = jsontext.value(response.get("text", b"null"))
    is_told = bulk != "text" and isinstance(said, str) and 0 < utf8_length(said) <= aside_bytes
    status = jsontext.value(response["status"])
    is_word = isinstance(status, str) and status != "error"  # a number is an HTTP status, and says more
    written = {
        "status": b'"partial"' if is_word else bytes(response["status"]),
        "data": b"null",
        "text": jsontext.dump(f"{note} {said}" if is_told else note),
    }
    beside: Mapping[str, Any] = {}
    if bulk == "text" and len(bytes(response["data"])) <= aside_bytes:
        data = jsontext.value(response["data"])
        beside = data if isinstance(data, dict) else {} if data is None else {"value": data}
    yield {name: written.get(name, bytes(raw)) for name, raw in response.items()} | written, beside, False
    least = {"status": written["status"], "data": b"null", "text": jsontext.dump(note)}
    error = {"error": bytes(response["error"])} if "error" in response else {}
    if len(error.get("error", b"")) <= aside_bytes:
        yield least | error, {}, False
    yield least, {}, True


def _nothing_of(bulk: str) -> Excerpt:
    """The excerpt that shows nothing."""
    return Excerpt("", (), "", bulk, count_lines(bulk), utf8_length(bulk), 0, 0)


def _preview(shown: Excerpt) -> str:
    return quoted("\n[…]\n".join(part for part in (shown.head, *shown.rescued, shown.tail) if part))
