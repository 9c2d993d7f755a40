"""What a model takes: its window, its limits, what it reads. A record; who says so: `shell/models/`.

Rule: `None` means that nobody states it, which is not the same as no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

DEFAULT_WINDOW_TOKENS: Final = 128_000
"""The window of a model that nobody knows: what most hosted models of the last two years have at least."""


class ToolImages(StrEnum):
    """Where the media of a tool's result go, for a model that reads them."""

    KEEP = "keep"
    """They stay in the result."""
    USER_AFTER_BATCH = "user_after_batch"
    """One user message behind all results of the batch: most upstreams take text alone in a result."""
    USER_AFTER_ASSISTANT = "user_after_assistant"
    """The same with a word of the assistant before it: Mistral takes no user message right behind a result."""
    TEXT = "text"
    """A description stands in the result."""


class Modality(StrEnum):
    """One kind of input."""

    TEXT = "text"
    VISION = "vision"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"


class Witness(StrEnum):
    """How it is known that a window is so large."""

    STATED = "stated"
    """By the settings, the upstream itself, or the catalogue's entry for this very provider."""
    LEARNED = "learned"
    """A refusal printed it, or usage has shown it: it was true then."""
    INFERRED = "inferred"
    """From refusals that name no window: requests are fitted to it, but it is no evidence against another refusal."""
    GUESSED = "guessed"
    """The default, or another provider's: good enough for shares and hints, but nothing is refused or left out because
    of it."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """One model at one upstream."""

    model: str
    """The name as the client sends it."""
    window_tokens: int = DEFAULT_WINDOW_TOKENS
    """Prompt and reply together."""
    input_tokens: int | None = None
    """The prompt alone, where an upstream limits it apart from the window."""
    output_tokens: int | None = None
    """The reply alone."""
    modalities: frozenset[Modality] | None = None
    """What it reads."""
    refused: frozenset[Modality] = frozenset()
    """What its upstream has refused, whatever is stated."""
    results_hold_text: bool = False
    """Whether its upstream has refused media in the results of tools."""
    refuses_our_tool: bool = False
    """Whether its upstream has refused the proxy's own tool."""
    tokenizer: str | None = None
    """tiktoken encoding, `bytes` for the estimate, or None: by the model's name."""
    cuts_silently: bool = False
    """Whether its upstream cuts a longer prompt without a word: such a request is made as small as it can be, and sent
    even when that is not small enough."""
    witness: Witness = Witness.STATED
    """Of the window."""
    image_tokens: tuple[tuple[str, int], ...] = ()
    """Of images, by `image_key`, as its upstream has shown to count them."""
    input_chars: int | None = None
    """Of the prompt alone, where an upstream bounds it so."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each value came from: by field name, a phrase such as `config models[0]` or `default`."""

    @property
    def window_is_guessed(self) -> bool:
        """Whether nobody who must know says how large the window is, and nothing has shown it."""
        return self.witness is Witness.GUESSED

    @property
    def certain_window_tokens(self) -> int | None:
        """The window, when it is stated or learned; None when it is guessed or inferred."""
        return self.window_tokens if self.witness in (Witness.STATED, Witness.LEARNED) else None

    def reads(self, modality: Modality) -> bool | None:
        """Whether the model takes this kind of input; None when nobody states it."""
        if modality in self.refused:
            return False
        return None if self.modalities is None else modality in self.modalities
