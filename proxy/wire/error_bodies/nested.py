"""Values and texts → what they say, through JSON in strings, `b'...'`, Python reprs, HTML and JSON inside a text.

Rule: at most six wrappers deep and a few passes over each text; nothing is evaluated, nothing raises. A path consists
only of names that look like names, never of content.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any, Final

from msgspec import Struct, field

from proxy.core.overflow import ErrorCode, ErrorText

MAX_FOUND: Final = 128
"""The richest error seen has fourteen."""
_MAX_TEXT_CHARS: Final = 4_096
"""An explanation is shorter; anything longer echoes the request."""

_MAX_WRAPPINGS: Final = 6
"""Deepest seen: a relay's `detail` around LiteLLM's text around `b'...'` around JSON, four."""
_MAX_NESTING: Final = 24
_MAX_MEMBERS: Final = 64

_ECHOES: Final = frozenset(
    {"input", "content", "contents", "messages", "prompt", "request", "request_body", "choices", "delta", "output"}
    | {"failed_generation", "generated_text", "user", "user_id", "organization", "provider_name", "url", "help_url"}
    | {
        "documentation_url",
        "doc_url",
        "stack",
        "stacktrace",
        "traceback",
        "headers",
        "loc",
        "usage",
        "ctx",
        "candidates",
    }
)
"""Members that repeat the request, the model's words or the upstream's internals: pydantic's `input`, Groq's
`failed_generation`."""
_CODES: Final = frozenset(
    {"code", "type", "status", "error_code", "error_type", "err_code", "status_code", "provider_error_code"}
)
_TELLING: Final = frozenset(
    {
        "message",
        "msg",
        "error",
        "errors",
        "detail",
        "details",
        "code",
        "type",
        "error_msg",
        "error_message",
        "error_code",
    }
    | {"error_type", "status_msg", "reason", "raw", "errmsg", "err_msg", "cause", "response", "base_resp"}
)
"""Members that show that an object inside a text is an error, not an example of a parameter."""

_OPENING: Final = re.compile(r"[\[{](?=\s{0,99}[\"'{\[])")
_MEMBER: Final = re.compile(r"""["']([A-Za-z_]{2,40})["']\s{0,9}:\s{0,9}""")
_VALUE: Final = re.compile(
    r"""b?"((?:[^"\\]|\\.)*+)(?:"|\Z)|b?'((?:[^'\\]|\\.)*+)(?:'|\Z)|(-?\d{1,15})\b|(?:None|True|False|null|true|false)\b""",
    re.DOTALL,
)
_BYTES_REPR: Final = re.compile(r"""\bb(['"])(?=[{\[\\])""")
_CODE_SHAPE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-:/#\[\]]{0,79}")
"""A code, or a `param`: `messages[3].content`."""
_TAG: Final = re.compile(r"</?[a-z!][^<>]*>", re.IGNORECASE)
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_\-]{1,40}")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EDGES: Final = " \n\t:.,-'\"{}[]()"
_DECODER: Final = json.JSONDecoder(strict=False)


class FoundCode(Struct, frozen=True):
    """One word for programs, as received."""

    path: str
    name: str
    """The member that contained it, in snake case."""
    text: str


class Found(Struct):
    """What has been found in a response so far."""

    texts: list[ErrorText] = field(default_factory=list)
    codes: list[FoundCode] = field(default_factory=list)
    numbers: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By the member that contained each, in snake case, with its path; the first of each name."""
    endings: list[ErrorCode] = field(default_factory=list)
    counted_prompt: int | None = None
    counted_reply: int | None = None
    is_bare_text: bool = False
    is_silent: bool = False
    has_output: bool = False

    @property
    def is_full(self) -> bool:
        return len(self.texts) + len(self.codes) + len(self.numbers) >= MAX_FOUND


def json_or_none(text: str) -> Any:
    """The JSON that the whole text is; None if it is not JSON (or `null`, which says as little)."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def collect(found: Found, path: str, name: str, value: Any, *, wrappings: int = 0, nesting: int = 0) -> None:
    """Add everything under one JSON value."""
    if found.is_full or nesting > _MAX_NESTING:
        return
    match value:
        case dict():
            holds_remarks = all(_is_remark(inner) for inner in value.values())
            for key, inner in islice(value.items(), _MAX_MEMBERS):
                member = snake(key)
                if member not in _ECHOES or holds_remarks:
                    collect(found, joined(path, key), member, inner, wrappings=wrappings, nesting=nesting + 1)
        case list():
            for index, inner in enumerate(value[:_MAX_MEMBERS]):
                collect(found, f"{path}[{index}]", name, inner, wrappings=wrappings, nesting=nesting + 1)
        case str():
            collect_text(found, path, name, value, wrappings)
        case bool() | None:
            pass
        case _ if name in _CODES:
            found.codes.append(FoundCode(path, name, str(value)))
        case _ if abs(value) < 1e12:  # neither infinite nor NaN, which compares as false
            found.numbers.setdefault(name, (int(value), path))


def _is_remark(value: Any) -> bool:
    """Whether this could be remarks about the member at fault: `{"errors": {"messages": ["is too long"]}}`."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def collect_text(found: Found, path: str, name: str, text: str, wrappings: int = 0) -> None:
    """Add a text: as a code if it is one word, taken apart if it wraps something."""
    if found.is_full or not text.strip() or text == "None":
        return
    if _CODE_SHAPE.fullmatch(text):
        found.codes.append(FoundCode(path, name, text))
    elif wrappings >= _MAX_WRAPPINGS or not _collect_wrapped(found, path, name, text, wrappings + 1):
        _collect_plain(found, path, text)


def _collect_plain(found: Found, path: str, text: str) -> None:
    plain = _TAG.sub(" ", text) if "</" in text else text
    if plain.strip(_EDGES):
        found.texts.append(ErrorText(path, plain.strip()[:_MAX_TEXT_CHARS]))


def _collect_wrapped(found: Found, path: str, name: str, text: str, wrappings: int) -> bool:
    """Take apart the first JSON or repr in a text, and the text before and after it; False if there is none."""
    text = _BYTES_REPR.sub(" ", text)
    for candidate in dict.fromkeys((text, _unescaped(text))):
        for opening in islice(_OPENING.finditer(candidate), 3):
            try:
                value, end = _DECODER.raw_decode(candidate, opening.start())
            except (ValueError, RecursionError):
                continue
            if opening.start() and not _tells(value):
                continue
            _collect_plain(found, path, candidate[: opening.start()].strip(_EDGES))
            collect(found, inside(path), name, value, wrappings=wrappings)
            collect_text(found, path, name, candidate[end:].strip(_EDGES), wrappings)
            return True
    return _collect_repr(found, path, text, wrappings)


def _tells(value: Any, nesting: int = _MAX_NESTING) -> bool:
    if isinstance(value, list):
        return nesting > 0 and any(_tells(item, nesting - 1) for item in value[:_MAX_MEMBERS])
    return isinstance(value, dict) and any(snake(key) in _TELLING for key in value)


def _collect_repr(found: Found, path: str, text: str, wrappings: int) -> bool:
    """Members of a Python repr, or of truncated or repaired JSON, read one by one: `'message': "..."`."""
    heads = list(islice(_MEMBER.finditer(text), _MAX_MEMBERS))
    if not any(snake(head[1]) in _TELLING for head in heads):
        return False
    start, end = heads[0].start(), heads[0].start()
    for head in heads:
        if head.start() < end or (value := _VALUE.match(text, head.end())) is None:
            continue
        end = value.end()
        if (member := snake(head[1])) not in _ECHOES and value.lastindex is not None:
            said = int(value[3]) if value[3] else _unescaped(value[value.lastindex])
            collect(found, joined(inside(path), head[1]), member, said, wrappings=wrappings)
    _collect_plain(found, path, text[:start].strip(_EDGES))
    _collect_plain(found, path, text[end:].strip(_EDGES))
    return True


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\'", "'").replace('\\"', '"').replace("\\\\", "\\")


def joined(path: str, key: object) -> str:
    """The path of a member; a key that does not look like a name could be content and becomes `*`."""
    name = key if isinstance(key, str) and _SAFE_NAME.fullmatch(key) else "*"
    return f"{path}.{name}" if path and not path.endswith(">") else f"{path}{name}"


def inside(path: str) -> str:
    """The path inside a text that wraps something; the body itself is not named."""
    return f"{path}>" if path else ""


def snake(name: str) -> str:
    """A member's name in snake case.

    >>> snake("errorCode"), snake("error-msg")
    ('error_code', 'error_msg')
    """
    return _CAMEL.sub("_", name[:60]).replace("-", "_").lower()
