"""The common shape of tool results, `{"status": …, "data": …, "text"?, "stats"?, "context"?, "error"?}`: a long one
becomes a shorter one in the same shape.

Rule: the result stays JSON that the agent's own code reads as before, whatever is written into it: `status` becomes
`partial` (`error` and numbers are kept), `data` holds a preview of the bulk, `text` says where the whole is, and the
other members keep their bytes while there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from proxy.core.artifact import Artifact
from proxy.core.conversation import Edit, Reason, Spot
from proxy.core.notices import Notices, Resume, quoted, written_length
from proxy.core.text import Direction, Excerpt, ExcerptLimits, Raw, count_lines, excerpt, jsontext, utf8_length

_MEMBERS: Final = frozenset({"status", "data"})
"""These distinguish the shape from other JSON."""


def tool_response(text: str) -> Mapping[str, Raw] | None:
    """The members of a result in this shape; None if the text is something else."""
    found = json_object(text)
    return found if found is not None and found.keys() >= _MEMBERS else None


def json_object(text: str) -> Mapping[str, Raw] | None:
    """The members of a result that is a JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return jsontext.members(text.encode("utf-8", "surrogatepass"))
    except jsontext.NotJson:
        return None


def asks_to_stay(found: Mapping[str, Raw]) -> bool:
    """Whether a JSON object itself asks to be left alone: `{"context": {"truncation_skip": true}}`."""
    context = jsontext.opened(found.get("context"))
    return isinstance(context, dict) and context.get("truncation_skip") is True


def with_note(response: Mapping[str, Raw], note: str) -> str:
    """The result with a note before its `text`.

    >>> with_note(tool_response('{"status": "ok", "data": 1, "text": "done"}'), "Mind this. ")
    '{"status":"ok","data":1,"text":"Mind this. done"}'
    """
    old = jsontext.value(response.get("text", b"null"))
    text = jsontext.dump(note + old if isinstance(old, str) else note)
    return jsontext.join_object(dict(response) | {"text": text}).decode("utf-8", "surrogatepass")


_SHORTENED: Final = ("data", "text")
"""The members that may contain the bulk."""
_ASIDE_SHARE: Final = 0.1
"""Share of the room: the shorter of the two stays if it takes no more than this."""
_FRAME_SHARE: Final = 0.6
"""Share of the room: members beside the bulk stay while all of them together take no more than this."""
_SCALES: Final = (1.0, 0.97, 0.9, 0.75, 0.5, 0.15, 0.0)
"""Shares of the room for a preview as its own draft measured it, tried in turn: in JSON a quote takes two bytes and a
control character six, and they are not evenly spread over a text."""


def has_its_bulk_in_shape(response: Mapping[str, Raw]) -> bool:
    """Whether most of a response is its `data` or its `text`. Other JSON may also have a `status` and `data` but its
    bulk elsewhere: it is cut as text."""
    sizes = {name: len(bytes(raw)) for name, raw in response.items()}
    return 2 * sum(sizes.get(name, 0) for name in _SHORTENED) >= sum(sizes.values())


def shortened_response(
    spot: Spot,
    response: Mapping[str, Raw],
    limits: ExcerptLimits,
    notices: Notices,
    reason: Reason,
    preview_chars: int | None = None,
) -> Edit | None:
    """Keep the shape with a preview of its bulk; None if that would save nothing."""
    artifact = Artifact(spot.text.encode("utf-8", "surrogatepass"), spot.tool, "json")
    shortened = _Shortening.of(spot.text, response, limits, artifact, notices).fitted(preview_chars)
    return spot.edited(shortened, reason, artifact) if utf8_length(shortened) < utf8_length(spot.text) else None


class _Shortening(Struct, frozen=True):
    """One response while it is being shortened."""

    text: str
    """The whole response."""
    member: str
    """The member to preview: `data` or `text`, whichever is longer."""
    bulk: str
    """The text to preview."""
    written: str
    """The member of the response that holds it, as written."""
    artifact: Artifact
    notices: Notices
    limits: ExcerptLimits
    frame: Mapping[str, bytes] = {}
    """The members of the new response, with `data` and `text` still without a preview."""
    beside: Mapping[str, Any] = {}
    """The other members of the new `data`: short data if `text` was the bulk."""
    aside: str = ""
    """Text of the response besides the bulk."""
    is_bare: bool = False
    """Whether there is not even room for the numbers of the cut."""

    @classmethod
    def of(
        cls, text: str, response: Mapping[str, Raw], limits: ExcerptLimits, artifact: Artifact, notices: Notices
    ) -> _Shortening:
        """Keep as many of the other members as fit."""
        name = max(_SHORTENED, key=lambda name: len(bytes(response.get(name, b""))))
        response = {key: raw if key == name else _marked(raw) for key, raw in response.items()}
        written = bytes(response[name]).decode("utf-8", "surrogatepass")
        opened = jsontext.value(response[name])
        bulk = opened if isinstance(opened, str) else written
        if bulk is written:  # JSON ends with brackets
            limits = structs.replace(limits, direction=Direction.HEAD)
        whole = cls(text, name, bulk, written, artifact, notices, limits)
        for frame, beside, aside, is_bare in _frames(response, name, limits):
            found = structs.replace(whole, frame=frame, beside=beside, aside=aside, is_bare=is_bare)
            if utf8_length(found.framed(_nothing_of(bulk))) <= limits.max_bytes * _FRAME_SHARE:
                break
        return found

    def fitted(self, preview_chars: int | None) -> str:
        """The response with the longest preview that its limits allow."""
        bare = self.framed(_nothing_of(self.bulk))
        left_bytes = max(0, self.limits.max_bytes - utf8_length(bare))
        left_chars = None if self.limits.max_chars is None else max(0, self.limits.max_chars - len(bare))
        room = structs.replace(self.limits, max_bytes=left_bytes, max_chars=left_chars).previewed(preview_chars)
        draft = excerpt(self.bulk, room)
        written = jsontext.dump(_preview(draft))
        share = min(1.0, (draft.kept_bytes + 1) / max(1, len(written)))
        for scale in _SCALES:
            chars = None if room.max_chars is None else int(room.max_chars * share * scale)
            found = self.framed(
                excerpt(self.bulk, structs.replace(room, max_bytes=int(left_bytes * share * scale), max_chars=chars))
            )
            if structs.replace(self.limits, max_lines=len(found) + 1).admit(found):
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
                "full_output_path": self.notices.place_of(self.artifact) if self.notices.kept else None,
            }
        if not self.is_bare or shown.kept_bytes:
            data["preview"] = _preview(shown)
        note = self.notices.response_text(self.artifact, self._resume(shown), brief=self.is_bare)
        text = f"{note} {self.aside}" if self.aside else note
        members = {**self.frame, "data": jsontext.dump(data), "text": jsontext.dump(text)}
        return jsontext.join_object(members).decode("utf-8", "surrogatepass")

    def _resume(self, shown: Excerpt) -> Resume:
        """Where reading continues in the whole response, and in the part of which there is a preview."""
        is_text = self.bulk is not self.written
        begin = self.text.find(self.written)
        begin += written_length(self.written, len(shown.head)) if is_text else len(shown.head)
        page = self.notices.page
        inside = Resume.after(shown, page)
        return Resume.between(self.text[:begin], self.text[begin:], page).in_part(f"/{self.member}", inside)


def _frames(
    response: Mapping[str, Raw], bulk: str, limits: ExcerptLimits
) -> Iterator[tuple[Mapping[str, bytes], Mapping[str, Any], str, bool]]:
    """Members of the new response, what is put beside the preview, and the text after the note, from everything to the
    minimum."""
    aside_bytes = limits.max_bytes * _ASIDE_SHARE
    text = jsontext.value(response.get("text", b"null"))
    is_shown = bulk != "text" and isinstance(text, str) and 0 < utf8_length(text) <= aside_bytes
    status = jsontext.value(response["status"])
    is_word = isinstance(status, str) and status != "error"  # a number is an HTTP status, and says more
    least = {"status": b'"partial"' if is_word else bytes(response["status"]), "data": b"null", "text": b"null"}
    beside: Mapping[str, Any] = {}
    if bulk == "text" and len(bytes(response["data"])) <= aside_bytes:
        data = jsontext.value(response["data"])
        beside = data if isinstance(data, dict) else {} if data is None else {"value": data}
    every = {name: least.get(name, bytes(raw)) for name, raw in response.items()} | least
    yield every, beside, text if is_shown else "", False
    error = {"error": bytes(response["error"])} if "error" in response else {}
    if len(error.get("error", b"")) <= aside_bytes:
        yield least | error, {}, "", False
    yield least, {}, "", True


def _nothing_of(bulk: str) -> Excerpt:
    """The excerpt that shows nothing."""
    return Excerpt("", (), "", bulk, count_lines(bulk), utf8_length(bulk), 0, 0)


def _marked(raw: Raw) -> Raw:
    return quoted(bytes(raw).decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")


def _preview(shown: Excerpt) -> str:
    return quoted("\n[…]\n".join(part for part in (shown.head, *shown.rescued, shown.tail) if part))
