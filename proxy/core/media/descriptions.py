"""What a model reads in the place of media, and beside them, in English and Chinese.

Rule: as in `notices.py`; names and addresses that somebody else wrote are one line of bounded length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proxy.core.artifact import Artifact
from proxy.core.content_types import ContentKind, MediaType
from proxy.core.notices.catalogue import Language, Notices
from proxy.core.notices.media import friendly_kind, friendly_size, friendly_type


class OmissionReason(StrEnum):
    """Why words stand in the place of a content. The values name the words."""

    MODEL = "model"
    """The model does not read this kind."""
    IN_TEXT = "in_text"
    """It came inside a text, and nobody says that the model reads this kind."""
    UNSTATED = "unstated"
    """A text names it, and nobody says that the model reads this kind."""
    BROKEN = "broken"
    EMPTY = "empty"
    TOO_LARGE = "too_large"
    TOO_MANY_PIXELS = "too_many_pixels"
    TOO_MANY = "too_many"
    """More than a message, or a request, may show."""
    FORMAT = "format"
    """No model reads this format."""
    PLACE = "place"
    """The message that it came in cannot hold it."""
    FORCED = "forced"
    """It was decoded as text."""
    ENCODING = "encoding"
    """It is text, and not in Unicode."""
    LONG_TEXT = "long_text"
    """It is text, and too long to stand here."""


_REASONS: Final[Mapping[OmissionReason, tuple[str, str]]] = {
    OmissionReason.MODEL: ("The current model cannot read this kind of file.", "当前模型无法读取此类文件。"),
    OmissionReason.IN_TEXT: (
        "It was written into a text as base64, which no model can read.",
        "它以 base64 形式写在文本中，模型无法读取。",
    ),
    OmissionReason.UNSTATED: (
        "It is not known whether the current model can read this kind of file.",
        "尚不清楚当前模型能否读取此类文件。",
    ),
    OmissionReason.BROKEN: ("Its base64 is broken or incomplete.", "其 base64 数据已损坏或不完整。"),
    OmissionReason.EMPTY: ("It is empty.", "其内容为空。"),
    OmissionReason.TOO_LARGE: ("It is over the limit of {limit}.", "它超过了 {limit} 的上限。"),
    OmissionReason.TOO_MANY_PIXELS: ("It is over the limit of {limit:,} pixels.", "它超过了 {limit:,} 像素的上限。"),
    OmissionReason.TOO_MANY: ("There are more images than can be shown at once.", "图片数量超过了可同时显示的上限。"),
    OmissionReason.FORMAT: ("Models do not read this format.", "模型不读取此格式。"),
    OmissionReason.PLACE: ("It cannot be shown in this message.", "它无法在此消息中显示。"),
    OmissionReason.FORCED: (
        "It was decoded as text, which has damaged it: read the file as binary instead.",
        "它被当作文本解码，内容已损坏：请改为以二进制方式读取该文件。",
    ),
    OmissionReason.ENCODING: ("It is text in an encoding other than Unicode.", "它是文本，但不是 Unicode 编码。"),
    OmissionReason.LONG_TEXT: ("It is text, too long to be shown here.", "它是文本，过长而未在此显示。"),
}
_CAPABILITY: Final = frozenset({OmissionReason.MODEL, OmissionReason.IN_TEXT, OmissionReason.UNSTATED})
"""What another model might read: the content is whole, and it is this model, or its upstream, that does not take it."""
_PHRASES: Final[Mapping[str, tuple[str, str]]] = {
    "title": ("[cannot read] {name}", "[无法读取] {name}"),
    "type": ("Type: {kind}{facts}", "类型：{kind}{facts}"),
    "fact": (", {fact}", "，{fact}"),
    "pixels": ("{width} x {height} pixels", "{width} x {height} 像素"),
    "address": ("Address: {address}", "地址：{address}"),
    "unkept": (" It could not be kept.", " 它未能保存。"),
    "subagent": (
        " Consider handing it to a sub-agent that can read such files.",
        " 建议创建具备相应能力的智能体协助处理。",
    ),
    "shown_here": (
        "[{kind} {number} of this message is shown behind this text]",
        "[本消息的第 {number} 个附件（{kind}）显示在此文本之后]",
    ),
    "shown_behind": (
        "[{kind} {number} of this result is shown in the user message behind the tool results]",
        "[此结果的第 {number} 个附件（{kind}）显示在工具结果之后的用户消息中]",
    ),
    "of_result": ("[attachment {number} of the result of {tool}]", "[{tool} 结果的第 {number} 个附件]"),
    "of_call": (
        "[attachment {number} of the result of {tool}, call {call}]",
        "[{tool} 结果（调用 {call}）的第 {number} 个附件]",
    ),
    "a_tool": ("a tool", "工具"),
    "spoken": ("I look at what the tools have returned.", "我来看一下工具返回的内容。"),
}
_NAME_CHARACTERS: Final = 120
_ADDRESS_CHARACTERS: Final = 300
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a content that is not shown."""

    found: MediaType
    why: OmissionReason
    name: str = ""
    """Of the file, as somebody wrote it."""
    byte_count: int | None = None
    pixels: tuple[int, int] | None = None
    address: str = ""
    """Where it is, when it never was here."""
    limit: int = 0
    """In bytes or pixels, when that is why."""


def description(described: Described, artifact: Artifact | None, notices: Notices) -> str:
    """What stands in the place of a content: name, type, size, why, and the way to it."""
    language, found = notices.language, described.found
    name = _plain(described.name, _NAME_CHARACTERS) or default_name(found)
    if artifact is not None and notices.kept:
        name += f" (artifact:{artifact.id})"
    facts = [] if described.byte_count is None else [friendly_size(described.byte_count, language)]
    if described.pixels is not None:
        facts.append(_phrase(language, "pixels", width=described.pixels[0], height=described.pixels[1]))
    lines = [
        _phrase(language, "title", name=name),
        _phrase(
            language,
            "type",
            kind=friendly_type(found, language),
            facts="".join(_phrase(language, "fact", fact=fact) for fact in facts),
        ),
    ]
    if described.address:
        lines.append(_phrase(language, "address", address=_plain(described.address, _ADDRESS_CHARACTERS)))
    limit = friendly_size(described.limit, language) if described.why is OmissionReason.TOO_LARGE else described.limit
    reason = _REASONS[described.why][0 if language == "en" else 1].format(limit=limit)
    if artifact is not None:
        reason += notices.whole(artifact) if notices.kept else _phrase(language, "unkept")
    # A sub-agent may open the original by its name or address, also where the folder of artifacts is out of sight.
    can_be_handed_over = (artifact is not None and notices.kept) or described.address.startswith("http")
    if notices.subagent and can_be_handed_over and described.why in _CAPABILITY:
        reason += _phrase(language, "subagent")
    return "\n".join([*lines, reason])


def default_name(found: MediaType) -> str:
    """A name for a content that came without one."""
    kind = "file" if found.kind is ContentKind.OTHER else found.kind.value
    return f"{kind}.{found.suffix}" if found.suffix else kind


def shown(found: MediaType, number: int, *, behind: bool, language: Language) -> str:
    """What stands in a text for a content that is shown as media: behind the batch, or in the same message."""
    kind = friendly_kind(found.kind, language)
    return _phrase(language, "shown_behind" if behind else "shown_here", kind=kind, number=number)


def label(tool: str, call: str, number: int, language: Language) -> str:
    """What stands before a content that was moved behind its batch, so that the model knows whose it is."""
    of_tool = _plain(tool, _NAME_CHARACTERS) or _phrase(language, "a_tool")
    if call:
        return _phrase(language, "of_call", tool=of_tool, call=_plain(call, _NAME_CHARACTERS), number=number)
    return _phrase(language, "of_result", tool=of_tool, number=number)


def spoken(language: Language) -> str:
    """What the assistant says between its results and their media, where a user message may not follow results."""
    return _phrase(language, "spoken")


def named(name: str, text: str) -> str:
    """A text that came as a file."""
    plain = _plain(name, _NAME_CHARACTERS)
    return f"[{plain}]\n{text}" if plain else text


def _phrase(language: Language, key: str, **values: object) -> str:
    return _PHRASES[key][0 if language == "en" else 1].format(**values)


def _plain(foreign: str, max_characters: int) -> str:
    """One line of what somebody else wrote."""
    return _UNPRINTABLE.sub(" ", foreign[:max_characters]).strip()
