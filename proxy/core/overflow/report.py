"""Values for reading a response: its report, the verdict on it.

Rule: every upstream's response, in whatever wrapper, is reduced to a report of texts, codes, sizes and finish reasons,
with their paths; how it was encoded is not known here. A verdict contains numbers, names and the upstream's own words;
the caller decides what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from proxy.core.models import LimitName, Modality


class VerdictKind(StrEnum):
    """Reason of a refusal; only `prompt` and `prompt_plus_reply` mean that the request is too long."""

    ACCEPTED = "accepted"
    PROMPT = "prompt"
    PROMPT_PLUS_REPLY = "prompt_plus_reply"
    REPLY_ONLY = "reply_only"
    BYTES = "bytes"
    COUNT = "count"
    FIELD = "field"
    NOT_FOUND = "not_found"
    """An unknown model, or a path that the upstream does not serve."""
    RATE = "rate"
    QUOTA = "quota"
    PAIRING = "pairing"
    SEAL = "seal"
    """Reasoning that is encrypted or signed."""
    CALL_IDS = "call_ids"
    """Ids of calls that are too long, or of other characters."""
    CALL_NAMES = "call_names"
    """Names of tools in calls that are too long, or of other characters."""
    ITEM_IDS = "item_ids"
    """Ids of items that the upstream does not hold."""
    SAME_IDS = "same_ids"
    """Several calls with one id."""
    ARGUMENTS = "arguments"
    """Arguments of a call that are no JSON object."""
    EMPTY_CONTENT = "empty_content"
    TEXT_CONTENT = "text_content"
    """Content that is no string: parts, or null."""
    CACHE_MARKS = "cache_marks"
    """More marks for the prompt cache than a request may have."""
    SURROGATES = "surrogates"
    """Half characters, which are no UTF-8."""
    ROLE_ORDER = "role_order"
    """A user's message after a result, or two messages of one role."""
    FIRST_ROLE = "first_role"
    """The model's message before any user's."""
    LAST_ROLE = "last_role"
    """The model's message at the end."""
    SYSTEM_PLACE = "system_place"
    """A system message behind others."""
    OTHER_MEMBERS = "other_members"
    """Members of a message, or of an item or a block in it, that its API does not have."""
    REASONING = "reasoning"
    """Reasoning that must come back with the model's message."""
    EMPTY_REASONING = "empty_reasoning"
    """The same, where an empty one is not enough."""
    SIGNATURE = "signature"
    """A signature of thoughts that a call must have."""
    SERVER_TOOLS = "server_tools"
    """A use of the server's tools without its result, or a result alone."""
    POLICY = "policy"
    AUTH = "auth"
    MEDIA = "media"
    TRANSIENT = "transient"
    EMPTY = "empty"
    """A success without a reply."""
    UNKNOWN = "unknown"


FAULTS: Final = frozenset(
    {
        VerdictKind.CALL_IDS,
        VerdictKind.CALL_NAMES,
        VerdictKind.ITEM_IDS,
        VerdictKind.SAME_IDS,
        VerdictKind.ARGUMENTS,
        VerdictKind.EMPTY_CONTENT,
        VerdictKind.TEXT_CONTENT,
        VerdictKind.CACHE_MARKS,
        VerdictKind.SURROGATES,
        VerdictKind.ROLE_ORDER,
        VerdictKind.FIRST_ROLE,
        VerdictKind.LAST_ROLE,
        VerdictKind.SYSTEM_PLACE,
        VerdictKind.OTHER_MEMBERS,
        VerdictKind.REASONING,
        VerdictKind.EMPTY_REASONING,
        VerdictKind.SIGNATURE,
        VerdictKind.SERVER_TOOLS,
    }
)
"""Faults of a history that a repair takes out of every message that has them, in every later turn."""
REPAIRED: Final = FAULTS | {VerdictKind.PAIRING, VerdictKind.SEAL}
ROLES_IN_TURN: Final = re.compile(r"alternat|交替|consecutive|successive|interleave|in a row|even index|turn comes")
"""Words of a `ROLE_ORDER` that refuses messages of one role behind each other, too."""


class Scope(StrEnum):
    """Scope of a limit: the whole window (prompt and reply), or the input alone."""

    WINDOW = "window"
    INPUT = "input"
    UNKNOWN = "unknown"


class Exactness(StrEnum):
    """How precise a printed number is."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    ABOUT = "about"


class Unit(StrEnum):
    """The unit of a printed limit."""

    TOKENS = "tokens"
    CHARS = "chars"


_OVERFLOWS: Final = frozenset({VerdictKind.PROMPT, VerdictKind.PROMPT_PLUS_REPLY})


class Figures(Struct, frozen=True, kw_only=True):
    """The sizes that a response states, by role."""

    limit: int | None = None
    """In `unit`."""
    limit_scope: Scope = Scope.UNKNOWN
    limit_exactness: Exactness = Exactness.EXACT
    """`about` for a magnitude: 256K is 256 000 or 262 144."""
    requested: int | None = None
    """In `unit`: prompt and reply together, by the upstream's count."""
    prompt: int | None = None
    """In `unit`."""
    reply: int | None = None
    """The requested reply limit, in `unit`."""
    excess: int | None = None
    """In `unit`: by how much the request is over, if the upstream states only that."""
    unit: Unit | None = None
    """None if no number was read."""
    exactness: Exactness = Exactness.EXACT
    """Exactness of `requested` and `prompt`: vLLM stops counting one token past its limit, OpenRouter estimates."""

    @property
    def largest_size(self) -> int | None:
        """The largest size that was requested."""
        sizes = [self.requested, self.prompt]
        if self.prompt is not None and self.reply is not None:
            sizes.append(self.prompt + self.reply)
        return max((size for size in sizes if size is not None), default=None)

    @property
    def proves_overflow(self) -> bool:
        """Whether what was requested reaches the limit."""
        return self.limit is not None and self.largest_size is not None and self.largest_size >= self.limit


class Verdict(Figures, frozen=True):
    """The meaning of one upstream response. It has a limit only for an overflow, for a rate that the request alone
    exceeds, and for the one refusal of `max_tokens` that names the window."""

    kind: VerdictKind
    confidence: float = 0.0
    """0 to 1."""
    is_suspect: bool = False
    """Whether the response says nothing at all, and the request is long enough for that to be the reason."""
    refused: frozenset[Modality] = frozenset()
    """Kinds of input, for a refusal of media that names them."""
    refuses_model: bool = False
    """Whether a refusal of media is about the model, not about this one content or its place."""
    refuses_in_results: bool = False
    """Whether it is about media in tool results."""
    is_conditional: bool = False
    """Whether it refuses only under a condition, such as `n > 1`: then it says nothing about the model, unless media
    are refused again before any were accepted."""
    misses_json: bool = False
    """Whether it says that something in the request does not parse as JSON: a cut tool result, perhaps."""
    refuses_tools: bool = False
    """Whether it says that the model, or its server, can do nothing with tools."""
    may_be_echo: bool = False
    """Whether its numbers may be the client's own words, repeated by the upstream: nothing is learned from them."""
    named: LimitName | None = None
    """The limit besides the window that it names, with a number."""
    named_limit: int = 0
    """That number; 0 for a body that is too large by words alone."""
    named_seen: int | None = None
    """What the request has of it, if that is stated."""
    evidence: str = ""
    """Path of the leaf that decided, such as `error.metadata.raw>error.message`; never its content."""
    upstream_message: str = ""
    """The upstream's message for people, at most 2 KB; for the client, not for a log."""

    @property
    def stated(self) -> tuple[str, int | None, int | None]:
        """The name of what is refused, its limit, and what the request has of it; None where it does not say."""
        if self.named is not None:
            return self.named.value, self.named_limit or None, self.named_seen
        return self.kind.value, self.limit, self.largest_size

    @property
    def is_overflow(self) -> bool:
        """Whether the response says that the request is too long."""
        return self.kind in _OVERFLOWS

    @property
    def is_silent(self) -> bool:
        """Whether it is a success without a word, not even of why the reply ended."""
        return self.kind is VerdictKind.EMPTY and not self.evidence

    @property
    def names_no_limit(self) -> bool:
        """Whether the request is, or may be, too long for a limit that is unknown, or known only about."""
        is_unknown = self.limit is None or self.limit_exactness is not Exactness.EXACT
        return self.is_suspect or (self.is_overflow and is_unknown)

    @property
    def is_over_rate(self) -> bool:
        """Whether the request alone exceeds what a rate allows, so that waiting does not help."""
        return (
            self.kind is VerdictKind.RATE
            and self.limit is not None
            and self.requested is not None
            and self.requested > self.limit
        )

    @property
    def limit_is_learnable(self) -> bool:
        """Whether `limit` may be kept as the model's limit: exact and of a known scope; in characters only for the
        input, because no window is counted in them.

        A `reply_only` verdict has a limit only if the refusal of `max_tokens` names the window itself.
        """
        if self.limit is None or self.may_be_echo or self.limit_exactness is not Exactness.EXACT:
            return False
        if self.unit is Unit.CHARS:
            return self.limit_scope is Scope.INPUT
        return self.unit is Unit.TOKENS and self.limit_scope is not Scope.UNKNOWN


NEAR_FULL: Final = 0.9
"""Share of the window: our estimate may be a tenth off."""
_FAR_UNDER: Final = 0.5
"""Share of the size that a model surely accepts: a request below this is hardly too long."""
LEAST_WINDOW_TOKENS: Final = 2_048
"""The size that a model with an unknown window surely accepts: the smallest default of a server in use, `n_ctx` of
llama-cpp-python (github.com/abetlen/llama-cpp-python, `llama_cpp/server/settings.py`)."""

MIN_USEFUL_REPLY_TOKENS: Final = 256
"""A reply limit is not lowered below this to make a prompt fit: the reply would break off at once. From here on, it is
not used up by a reply without a token."""
TOO_LARGE: Final = 413
"""Anthropic's `request_too_large` (32 MB), nginx' and express' `Request Entity Too Large`, GitHub Copilot's: a proxy
before the API counts bytes and states no limit in any unit."""


_CUT_ENDINGS: Final = ("length", "max_tokens")


def means_cut(ending: str) -> bool:
    """Whether a finish reason says that the reply was cut, for whatever reason."""
    return ending.lower() in _CUT_ENDINGS


def as_words(name: str) -> str:
    """A code, or the name of a member, in snake case.

    >>> as_words("ContextWindowExceededError"), as_words("error-msg")
    ('context_window_exceeded_error', 'error_msg')
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:120])
    return re.sub(r"[\s.\-:/#]+", "_", spaced).lower().strip("_")


class ErrorText(Struct, frozen=True):
    """One text for people."""

    path: str = ""
    """Its path, such as `error.metadata.raw>error.message`; `>` comes before a path inside a text. Names only, never
    content."""
    text: str = ""


class Place(StrEnum):
    """A part of the request, as far as its length is concerned."""

    TEXT = "text"
    """The text of a message."""
    ELSEWHERE = "elsewhere"
    """A part that is never too long: a role, a tool, the model."""
    UNCLEAR = "unclear"


class ErrorCode(Struct, frozen=True):
    """One word for programs."""

    path: str
    text: str
    place: Place | None = None
    """The part of the request that a word names as refused; None if the word names the cause."""


class Counted(NamedTuple):
    """An upstream's counts for one response."""

    prompt: int
    reply: int = 0
    cached: int | None = None
    """Cached tokens of the prompt; some upstreams count these separately, and some not at all (None)."""


class ErrorReport(Struct):
    """Everything that a response says about itself; of a success only errors, finish reasons and counts, never the
    model's words."""

    status: int
    """The HTTP status."""
    asks_to_wait: bool = False
    texts: list[ErrorText] = []
    codes: list[ErrorCode] = []
    stated: Figures = Figures()
    """Sizes in tokens that are stated apart from the texts."""
    endings: list[ErrorCode] = []
    """Why the model stopped."""
    counted: Counted | None = None
    """The upstream's count for a success."""
    body_bytes: int = 0
    is_bare_text: bool = False
    """Whether it is a success in plain text."""
    is_silent: bool = False
    """Whether it is a success without a reply: nothing, comments, objects without a choice."""
    has_output: bool = False
    """Whether a success holds any output of the model."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Sent(Struct, frozen=True):
    """Our own knowledge of the request; None if unknown."""

    tokens: int | None = None
    """The prompt's size by our own estimate."""
    chars: int | None = None
    """Characters of its text."""
    window_tokens: int | None = None
    """The size that the model is assumed to accept."""
    window_is_certain: bool = True
    """A window that is not certain is no evidence."""
    guessed_tokens: int | None = None
    """The size that it is guessed to accept, where nobody has stated or shown one."""
    has_user_text: bool = False
    """Whether one of its messages is a user's."""
    reply_tokens: int | None = None
    """The reply limit of the request."""
    media_bytes: int = 0
    """Bytes of its media, decoded."""
    longest_message: int | None = None
    """Bytes of its longest message."""
    messages: int | None = None
    """How many it has."""

    @property
    def share(self) -> float | None:
        """The share of the size that the model surely accepts; None if unknown."""
        surely_taken = self.window_tokens if self.window_is_certain else LEAST_WINDOW_TOKENS
        return self.tokens / surely_taken if self.tokens and surely_taken else None

    @property
    def is_long(self) -> bool:
        """Whether its length may be the reason for a response that says nothing."""
        return self.share is not None and self.share >= NEAR_FULL

    @property
    def is_near_window(self) -> bool:
        """Whether it comes near the window that is known or guessed: far below, silence has another reason."""
        reach = self.guessed_tokens if self.window_tokens is None else self.window_tokens
        return self.tokens is not None and reach is not None and self.tokens >= NEAR_FULL * reach > 0

    @property
    def is_short(self) -> bool:
        """Whether vague words are hardly about its length."""
        return self.share is not None and self.share < _FAR_UNDER


Holds: TypeAlias = Callable[[str], bool]
"""Whether the request that was sent contains a text."""
