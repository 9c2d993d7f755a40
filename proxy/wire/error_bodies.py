"""The body of an error, in whatever shape → `ErrorReport` → what the core judges it to mean: plain, JSON or server-sent
events, through JSON in strings, `b'...'`, Python reprs, HTML and JSON inside a text; of a success only errors and
finish reasons.

Rule: nothing else parses an error, and nothing in here decides what one means. The assistant's words are never read,
whatever they look like. At most six wrappers deep and a few passes over each text; nothing is evaluated, nothing
raises. A path consists only of names that look like names, never of content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec import field

from proxy.core.overflow import (
    Counted,
    ErrorCode,
    ErrorReport,
    ErrorText,
    Figures,
    Place,
    Scope,
    Sent,
    Verdict,
    as_words,
    judge,
    means_cut,
)
from proxy.core.text import jsontext

MAX_FOUND: Final = 128
"""The richest error seen has fourteen."""
_MAX_TEXT_CHARS: Final = 4_096
"""An explanation is shorter; anything longer echoes the request."""

_MAX_WRAPPINGS: Final = 6
"""Deepest seen: a relay's `detail` around LiteLLM's text around `b'...'` around JSON, four."""
_MAX_NESTING: Final = 24
_MAX_MEMBERS: Final = 64

_OF_A_REQUEST: Final = frozenset(
    {"input", "contents", "messages", "prompt", "instructions", "system", "system_instruction", "tools", "functions"}
)
"""Members of a request on any API. Beside one that is repeated, only an error's own place is read: the rest may be
repeated, too, such as the `metadata` of a response that has failed."""
_REPEATED: Final = _OF_A_REQUEST | {"request", "request_body"}
_ECHOES: Final = frozenset(
    {"content", "choices", "delta", "output", *_REPEATED}
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
"""An error's own place: members that show that an object inside a text is an error, not an example of a parameter."""

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
_EDGES: Final = " \n\t:.,-'\"{}[]()"
_DECODER: Final = json.JSONDecoder(strict=False)


class Found(ErrorReport):
    """Findings in a response so far."""

    numbers: dict[str, int] = field(default_factory=dict)
    """By member name in snake case; the first of each name."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more is added."""
        return len(self.texts) + len(self.codes) + len(self.numbers) >= MAX_FOUND

    def add_code(self, path: str, name: str, text: str) -> None:
        """Add one word for programs. `name`: of the member that contained it, in snake case; ids name no cause."""
        if not name.endswith("id"):
            self.codes.append(ErrorCode(path, text, _place(text) if name == _PLACE else None))


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
            value = _with_place(value)
            holds_remarks = all(_is_remark(inner) for inner in value.values())
            is_beside_an_echo = _repeats_a_request(value)
            for key, inner in islice(value.items(), _MAX_MEMBERS):
                member = as_words(key)
                if holds_remarks or (member in _TELLING if is_beside_an_echo else member not in _ECHOES):
                    collect(found, joined(path, key), member, inner, wrappings=wrappings, nesting=nesting + 1)
        case list():
            for index, inner in enumerate(value[:_MAX_MEMBERS]):
                collect(found, f"{path}[{index}]", name, inner, wrappings=wrappings, nesting=nesting + 1)
        case str():
            collect_text(found, path, name, value, wrappings)
        case bool() | None:
            pass
        case _ if name in _CODES:
            found.add_code(path, name, str(value))
        case _ if abs(value) < 1e12:  # neither infinite nor NaN, which compares as false
            found.numbers.setdefault(name, int(value))


def _with_place(value: dict[str, Any]) -> dict[str, Any]:
    """A validator's error with the place before its words: pydantic's `loc`, zod's `path`, Spring's `field`; the member
    with remarks on it, as in Rails.

    >>> _with_place({"loc": ["body", "messages"], "msg": "List should have at most 40 items"})["msg"]
    'messages: List should have at most 40 items'
    """
    if all(map(_is_remark, value.values())):
        return {name: [_with_subject(name, remark) for remark in remarks] for name, remarks in value.items()}
    place = next(
        (found for name in ("loc", "path") if isinstance(found := value.get(name), list)), [value.get("field")]
    )
    said = next((name for name in ("msg", "message", "defaultMessage") if isinstance(value.get(name), str)), None)
    names = [str(one) for one in place if isinstance(one, str | int) and one != "body"]
    return value if not names or said is None else value | {said: f"{'.'.join(names)}: {value[said]}"}


def _with_subject(name: str, remark: str) -> str:
    """A remark that says nothing of what it is about, with the name of its member.

    >>> _with_subject("messages", "is too long (maximum is 40 items)")
    'messages: is too long (maximum is 40 items)'
    """
    return f"{name}: {remark}" if remark.startswith(("is ", "must ", "has ")) else remark


def _is_remark(value: Any) -> bool:
    """Whether this could be remarks about the member at fault: `{"errors": {"messages": ["is too long"]}}`."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def collect_text(found: Found, path: str, name: str, text: str, wrappings: int = 0) -> None:
    """Add a text: as a code if it is one word, taken apart if it wraps something."""
    if found.is_full or not text.strip() or text == "None":
        return
    if _CODE_SHAPE.fullmatch(text):
        found.add_code(path, name, text)
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
            if opening.start() and not (_tells(value) or _repeats_a_request(value)):
                continue
            _collect_plain(found, path, candidate[: opening.start()].strip(_EDGES))
            collect(found, inside(path), name, value, wrappings=wrappings)
            collect_text(found, path, name, candidate[end:].strip(_EDGES), wrappings)
            return True
    return _collect_repr(found, path, text, wrappings)


def _repeats_a_request(value: Any) -> bool:
    """A number under such a name is a size."""
    if not isinstance(value, dict):
        return False
    return any(as_words(key) in _OF_A_REQUEST and not isinstance(inner, int | float) for key, inner in value.items())


def _tells(value: Any, nesting: int = _MAX_NESTING) -> bool:
    if isinstance(value, list):
        return nesting > 0 and any(_tells(item, nesting - 1) for item in value[:_MAX_MEMBERS])
    return isinstance(value, dict) and any(as_words(key) in _TELLING for key in value)


def _collect_repr(found: Found, path: str, text: str, wrappings: int) -> bool:
    """Members of a Python repr, or of truncated or repaired JSON, read one by one: `'message': "..."`; up to a list or
    an object of a request that they repeat."""
    heads = list(islice(_MEMBER.finditer(text), _MAX_MEMBERS))
    repeated = (head for head in heads if as_words(head[1]) in _REPEATED and text.startswith(("[", "{"), head.end()))
    stop = next((head.start() for head in repeated), None)
    if stop is None and not any(as_words(head[1]) in _TELLING for head in heads):
        return False
    text = text[:stop]
    start, end = heads[0].start(), heads[0].start()
    for head in heads:
        if head.start() < end or (value := _VALUE.match(text, head.end())) is None:
            continue
        end = value.end()
        if (member := as_words(head[1])) not in _ECHOES and value.lastindex is not None:
            found_value = int(value[3]) if value[3] else _unescaped(value[value.lastindex])
            collect(found, joined(inside(path), head[1]), member, found_value, wrappings=wrappings)
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


MAX_BODY_BYTES: Final = 65_536
"""An error is short; anything longer is an echo of the request."""
_MAX_CHOICES: Final = 16
_MAX_DEPTH: Final = 8
"""Limit of responses nested in events; two are seen. Python 3.12 and later parse JSON nested deeper than calls may
be."""

_ERROR_MEMBERS: Final = ("error", "errors", "base_resp", "exception", "fault")
_USAGE_OR_ERROR_MEMBERS: Final = ("usage", *_ERROR_MEMBERS)
_ERROR_WITHOUT_ANSWER: Final = frozenset({"detail", "message", "msg", "error_msg", "error_message", "error_code"})
_ANSWER_MEMBERS: Final = ("choices", "output", "content", "candidates", "id")
_PARTS: Final = ("response", "message", "delta", "incomplete_details")
"""Objects inside a reply: `response.failed` of the Responses API, Anthropic's `message_start` and `message_delta`."""
_REASONS: Final = ("finish_reason", "stop_reason", "reason", "native_finish_reason")
_ENDINGS: Final = {"max_output_tokens": "max_tokens"}
"""Finish reasons of the Responses API, and their names on chat completions."""
_BEGINNINGS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_OUTPUT_MEMBERS: Final = ("output", "content", "item", "part", "content_block")
_NO_OUTPUT: Final = frozenset({"role", "stop_reason", "stop_sequence"})
"""Members of a message or a delta that hold no output of a model."""
_OF_A_BEGINNING: Final = frozenset({"index", "delta", "finish_reason"})
"""Members of a choice that may come before any content; a finish reason may not, but for a cut."""
_SUCCESSES: Final = frozenset({"", "0", "200", "ok", "success", "none"})

_SSE_LINE: Final = re.compile(r"\s{0,8}(?:event|data|id|retry|):", re.IGNORECASE)
_BLANK_LINES: Final = re.compile(r"\n\s*\n")
_EVENT_NAME: Final = re.compile(r"^\s{0,8}event:(.*)$", re.MULTILINE | re.IGNORECASE)
_FIELD_NAMES: Final = re.compile(r"^\s{0,8}(?:data:|(?:event|id|retry|):.*$)", re.MULTILINE | re.IGNORECASE)
"""`data:`, whose value is the data, and the whole of other fields and comments."""
_ERROR_EVENT: Final = re.compile(r"(?:response\.)?[\w-]*(?:error|exception|fail)[\w-]*", re.IGNORECASE)
"""Not `response.mcp_list_tools.failed`: one tool failed, and the response goes on."""
_CUT_JSON: Final = re.compile(r'\{\s{0,99}"')
"""How a reply begins that broke off: no plain text does."""


def report_of(
    status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, counted: Counted | None = None
) -> ErrorReport:
    """Report of a response, or of its beginning: of its first 64 KiB; of a success only errors are read."""
    text = body[:MAX_BODY_BYTES].decode("utf-8", "replace").strip().lstrip("\ufeff").strip()
    asks_to_wait = any(name.lower() == b"retry-after" for name, _ in headers)
    found = Found(status, asks_to_wait, counted=counted, body_bytes=len(body))
    if _SSE_LINE.match(text):
        _add_events(found, text)
    elif not found.is_success:
        collect_text(found, "", "", text)
    elif (value := json_or_none(text)) is not None:
        found.is_silent = _tells_no_part(value)
        _add_success(found, "", value)
    elif not _CUT_JSON.match(text):
        found.is_silent, found.is_bare_text = not text, bool(text)
        collect_text(found, "", "", text)
    found.is_silent = found.is_silent and not found.endings
    found.stated = _stated(found.numbers)
    return found


def _add_events(found: Found, text: str) -> None:
    found.is_silent = found.is_success
    for index, (name, payload) in enumerate(_events(text)):
        path = f"event[{index}]"
        if payload.strip() == "[DONE]":
            continue
        value = json_or_none(payload)
        found.is_silent &= _tells_no_part(value)
        repeats_a_request = isinstance(value, dict) and isinstance(value.get("response"), dict)  # `response.failed`
        if not found.is_success or (_ERROR_EVENT.fullmatch(name) and not repeats_a_request):
            collect_text(found, path, "", payload)
        else:
            _add_success(found, path, value)


def _events(text: str) -> Iterator[tuple[str, str]]:
    """(event name, data) of every event; a line without a field name continues the data (some servers do this)."""
    for event in _BLANK_LINES.split("\n".join(text.splitlines())):
        name = _EVENT_NAME.search(event)
        if data := _FIELD_NAMES.sub("", event).strip():
            yield name[1].strip() if name else "", data


def _add_success(found: Found, path: str, value: Any, depth: int = 0) -> None:
    """Errors, finish reasons and output of a 2xx body or event, and of the objects of which its reply consists."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return
    for name in _ERROR_MEMBERS:
        if (error := value.get(name)) and not _says_success(error):
            collect(found, joined(path, name), name, error)
    for name in _REASONS:
        if isinstance(reason := value.get(name), str):
            found.endings.append(ErrorCode(joined(path, name), _ENDINGS.get(reason, reason)))
    found.has_output |= _has_output(value)
    for name, inner in (*((name, value.get(name)) for name in _PARTS), *(("choices", one) for one in _choices(value))):
        _add_success(found, joined(path, name), inner, depth + 1)
    declares_error = str(value.get("type")).lower().endswith("error") or value.get("object") == "error"
    has_answer = any(map(value.get, _ANSWER_MEMBERS)) or isinstance(value.get("message"), dict)
    if declares_error or (not has_answer and any(as_words(name) in _ERROR_WITHOUT_ANSWER for name in value)):
        collect(found, path, "", {name: inner for name, inner in value.items() if name not in _ERROR_MEMBERS})


def holds_nothing(data: bytes) -> bool:
    """Whether the data of a stream's event is an object without any part of a reply, usage or error: Azure's first one,
    `{"choices":[],"prompt_filter_results":[…]}` (learn.microsoft.com/azure/ai-foundry/openai/concepts/
    content-streaming), which some servers send alone; OpenAI's, which only says that the assistant will speak; one that
    only says that the reply was cut: whether it had begun, the usage in the next event says."""
    return _tells_no_part(json_or_none(data.decode("utf-8", "replace")))


def _tells_no_part(value: Any) -> bool:
    """Usage alone is the end of a response, and an empty message is a reply; an object of another kind may be one."""
    if not isinstance(value, dict) or any(map(value.get, _USAGE_OR_ERROR_MEMBERS)):
        return False
    choices = value.get("choices")
    if not value or jsontext.string_in(value, "type") in _BEGINNINGS:
        return True
    if "choices" in value and not choices:
        return not value.keys() & _ERROR_WITHOUT_ANSWER
    if not isinstance(choices, list) or not 0 < len(choices) <= _MAX_CHOICES or _has_output(value):
        return False
    return all(
        isinstance(choice, dict)
        and isinstance(choice.get("delta"), dict)
        and not any(inner for name, inner in choice.items() if name not in _OF_A_BEGINNING)
        and (not choice.get("finish_reason") or means_cut(str(choice["finish_reason"])))
        for choice in choices
    )


def _choices(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in jsontext.listed(value.get("choices"))[:_MAX_CHOICES] if isinstance(one, dict)]


def _has_output(value: dict[str, Any]) -> bool:
    """Whether a body or an event holds any output of a model, on any API."""
    spoken = [value.get("delta")]
    for choice in _choices(value):
        spoken += [choice.get("message"), choice.get("delta"), choice.get("text")]
    return any(map(value.get, _OUTPUT_MEMBERS)) or any(
        any(inner for name, inner in one.items() if name not in _NO_OUTPUT) if isinstance(one, dict) else bool(one)
        for one in spoken
    )


def _says_success(value: Any) -> bool:
    """MiniMax's `base_resp` is in every response: `{"status_code": 0, "status_msg": "success"}`."""
    return isinstance(value, dict) and str(value.get("status_code", "-")).lower() in _SUCCESSES


_WINDOW: Final = ("n_ctx", "max_context_length", "context_length", "context_window", "max_model_len")
_INPUT: Final = ("max_input_tokens", "max_prompt_tokens")
_PROMPT: Final = ("n_prompt_tokens", "prompt_tokens", "input_tokens", "num_prompt_tokens", "prompt_token_count")
_REQUESTED: Final = ("requested_tokens", "total_tokens")

_PLACE: Final = "param"
"""OpenAI's member for the path of the refused part of the request."""
_OF_TEXT: Final = re.compile(
    r"(?:messages|input|prompt|contents?)(?:\W{0,2}\d{1,6}\W?|\.(?:content|text|parts|output|arguments)){0,6}"
)
"""`messages[3].content` is prompt, `messages[3].name` is not."""
_ELSEWHERE: Final = re.compile(
    r"(?:messages|input)\W{0,2}\d{1,6}\W?\.(?!content|text|parts|output|arguments|.{0,40}function\.arguments).*"
    r"|(?:model|tools?|tool_choice|functions?|function_call|response_format|stop|user|metadata)\b.*"
)
"""`messages[0].role`, `tools[3].function.name`."""


def _place(path: str) -> Place:
    if _OF_TEXT.fullmatch(path):
        return Place.TEXT
    return Place.ELSEWHERE if _ELSEWHERE.fullmatch(path) else Place.UNCLEAR


def _stated(numbers: Mapping[str, int]) -> Figures:
    """Sizes from members: llama.cpp says `n_ctx` and `n_prompt_tokens`."""
    window, of_input = _first(numbers, _WINDOW), _first(numbers, _INPUT)
    scope = Scope.WINDOW if window else Scope.INPUT if of_input else Scope.UNKNOWN
    prompt, requested = _first(numbers, _PROMPT), _first(numbers, _REQUESTED)
    return Figures(limit=window or of_input, limit_scope=scope, prompt=prompt, requested=requested)


def _first(numbers: Mapping[str, int], names: Sequence[str]) -> int | None:
    """The first of these members that has a size; servers put 0 or -1 into those that they do not know."""
    return next((size for name in names if (size := numbers.get(name, 0)) > 0), None)


def holds(request: bytes, text: str) -> bool:
    """Whether a request contains a text, literally or with the characters beyond ASCII escaped.

    >>> holds(b'{"content": "\\\\u4e2d 4096"}', "中 4096")
    True
    """
    plain = json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
    return plain in request or (not text.isascii() and json.dumps(text)[1:-1].encode() in request)


def judge_answer(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    *,
    sent: Sent | None = None,
    request: bytes = b"",
    counted: Counted | None = None,
) -> Verdict:
    """The meaning of an upstream's response. Never raises; linear in the first 64 KiB of the body.

    `body` is the response or its beginning; for a stream, the first meaningful event, or everything if there was none.
    `request` is the JSON that was answered: numbers that it holds, too, teach nothing. `counted`: of a success.
    """
    report = report_of(status, headers, body, counted)
    return judge(report, sent, partial(holds, request) if request else None)
