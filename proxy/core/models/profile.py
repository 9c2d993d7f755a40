"""The profile of a model, which `shell/models/` fills: its window, its limits, what it reads. Also what the tools of a
request can do, by their names and parameters.

Rule: `None` means unknown, which is not the same as no. Tools are judged by the list alone, so the result
is the same in every turn of a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct, field

DEFAULT_WINDOW_TOKENS: Final = 128_000
"""The window of an unknown model: most hosted models of the last two years have at least this much."""

LIFTED: Final = "[1m]"
"""Claude Code's end of a model's name for the model with a window of a million tokens. It sends the plain name, and
asks for that window in a header. https://code.claude.com/docs/en/model-config#extended-context"""


class ToolImages(StrEnum):
    """Where the media of a tool result go, for a model that reads them."""

    KEEP = "keep"
    """They stay in the result."""
    USER_AFTER_BATCH = "user_after_batch"
    """One user message after all results of the batch: most upstreams accept only text in a result."""
    USER_AFTER_ASSISTANT = "user_after_assistant"
    """One user message after a short assistant message: Mistral accepts no user message directly after a result."""
    TEXT = "text"
    """A description replaces them in the result."""


class Modality(StrEnum):
    """One kind of input."""

    TEXT = "text"
    VISION = "vision"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"


class Certainty(StrEnum):
    """How the size of a window is known."""

    STATED = "stated"
    """Stated by the settings, the upstream itself, or the catalogue's entry for this very provider."""
    LEARNED = "learned"
    """A refusal printed it, or usage has shown it: it was true at that time."""
    INFERRED = "inferred"
    """Inferred from refusals that name no window: requests are fitted to it, but it is no evidence against another
    refusal."""
    GUESSED = "guessed"
    """The default, or another provider's: good enough for shares and hints, but nothing is refused or left out because
    of it."""


class ModelProfile(Struct, frozen=True):
    """One model at one upstream."""

    model: str
    """The name as the client sends it."""
    window_tokens: int = DEFAULT_WINDOW_TOKENS
    """Prompt and reply together."""
    input_tokens: int | None = None
    """The prompt alone, where an upstream limits it separately from the window."""
    output_tokens: int | None = None
    """The reply alone."""
    modalities: frozenset[Modality] | None = None
    """The kinds of input that it reads; None: nobody states any."""
    unstated: frozenset[Modality] = frozenset()
    """The kinds about which nobody says anything, although other kinds are stated."""
    refused: frozenset[str] = frozenset()
    """The kinds of input, and digests of contents, that its upstream has refused, whatever is stated."""
    results_hold_text: bool = False
    """Whether its upstream has refused media in tool results."""
    refuses_our_tool: bool = False
    """Whether its upstream has refused the proxy's own tool."""
    refuses_cut_results: bool = False
    """Whether its upstream has refused results that were cut on arrival: they stay whole while the request fits."""
    tokenizer: str | None = None
    """tiktoken encoding, `bytes` for the estimate, or None: by the model's name."""
    cuts_silently: bool = False
    """Whether its upstream silently cuts a prompt that is too long: such a request is made as small as possible, and
    sent even if that is not small enough."""
    certainty: Certainty = Certainty.STATED
    """Certainty of the window."""
    preamble: str = ""
    """Put before the messages of every request by its upstream."""
    least_image_tokens: int = 0
    """Minimum cost of any image, where its upstream decides what to leave out."""
    rate_tokens: int | None = None
    """Per minute, where a request exceeded that alone: prompt and reply limit together, as far as they can be cut."""
    prompt_rate_tokens: int | None = None
    """The rate where the reply limit does not count."""
    input_chars: int | None = None
    """Limit of the prompt alone, where an upstream limits its characters."""
    at_most: Mapping[str, int] = field(default_factory=dict)
    """Every other limit, by its name: of several sources, the smallest."""
    suffix: str = ""
    """Suffix of the name under which lessons about it are kept, if its requests select a window."""
    windows: Sequence[tuple[int, str]] = ()
    """The window and a phrase by every source that states one, in the order in which they are believed."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each value comes from: by field name, a phrase such as `config models[0]` or `default`."""

    @property
    def known_as(self) -> str:
        """The name under which lessons about it are kept."""
        return self.model + self.suffix

    @property
    def window_is_guessed(self) -> bool:
        """Whether no authoritative source states the window, and nothing has shown it."""
        return self.certainty is Certainty.GUESSED

    @property
    def certain_window_tokens(self) -> int | None:
        """The window if it is stated or learned; None if it is guessed or inferred."""
        return self.window_tokens if self.certainty in (Certainty.STATED, Certainty.LEARNED) else None

    @property
    def is_rated(self) -> bool:
        """Whether one request has exceeded a rate alone."""
        return self.rate_tokens is not None or self.prompt_rate_tokens is not None

    def reads(self, modality: Modality) -> bool | None:
        """Whether the model reads this kind of input; None if unknown."""
        if modality in self.refused:
            return False
        return None if self.modalities is None or modality in self.unstated else modality in self.modalities


_SHELL: Final = re.compile(
    r"bash|shell|terminal|powershell|(?:run|exec|execute)_?(?:command|cmd)|^exec$|^cmd$", re.IGNORECASE
)
_READER: Final = re.compile(
    r"(?:read|view|open|cat)_?(?:many_?)?files?|^read$|^view$|str_replace.{0,40}edit|grep|search_?files?", re.IGNORECASE
)
_SUBAGENT: Final = re.compile(r"^(?:task|agent)$|sub_?agent|dispatch_?agent|delegate|spawn_?agent", re.IGNORECASE)
"""Names in the tool lists of Claude Code, Codex, opencode, qwen-code, Cline and OpenHands. Claude Code has called it
Agent since 2.1.63, and Task before: https://code.claude.com/docs/en/sub-agents"""


class AgentFileAccess(StrEnum):
    """How the agent can read a file; the values name the texts about it."""

    NOTHING = "nothing"
    SUBAGENT = "subagent"
    PAGE = "page"
    SHELL = "shell"


def reach_with(names: Sequence[str], *, sees_files: bool = True) -> AgentFileAccess:
    """The best way to an artifact that tools with these names offer: a sub-agent saves context, a reader pages, a shell
    does everything. `sees_files`: whether the agent sees the folder; only a shell can read artifacts without it.

    >>> reach_with(["run_command"])
    <AgentFileAccess.SHELL: 'shell'>
    """
    for pattern, reach in (
        (_SUBAGENT, AgentFileAccess.SUBAGENT),
        (_READER, AgentFileAccess.PAGE),
        (_SHELL, AgentFileAccess.SHELL),
    ):
        if (sees_files or reach is AgentFileAccess.SHELL) and any(pattern.search(name) for name in names):
            return reach
    return AgentFileAccess.NOTHING


class AgentTools(NamedTuple):
    """What the tools of a request offer its agent."""

    reach: AgentFileAccess = AgentFileAccess.NOTHING
    """The best way to an artifact."""
    has_subagent: bool = False
    """Whether work can be handed to a sub-agent, which may run on another model, whatever files the proxy shares."""
    has_shell: bool = False
    """Whether commands can be run, whatever else these tools offer."""
    has_any: bool = False

    @classmethod
    def of(cls, names: Sequence[str], *, sees_files: bool) -> AgentTools:
        """Tools with these names; `sees_files` as for `reach_with`.

        >>> AgentTools.of(["Task", "Bash"], sees_files=False)[1:], AgentTools.of(["Read"], sees_files=True)[1:]
        ((True, True, True), (False, False, True))
        """
        has_subagent, has_shell = (any(map(pattern.search, names)) for pattern in (_SUBAGENT, _SHELL))
        return cls(reach_with(names, sees_files=sees_files), has_subagent, has_shell, bool(names))
