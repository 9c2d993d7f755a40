"""What chat completions call the counts of the upstream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from proxy.wire.rounds_usage import RoundsUsage


class AnswerUsage(RoundsUsage):
    """The usage of one response, round by round. The record has the names of this API."""

    totals_of: ClassVar[Mapping[str, str]] = {
        name: name for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }
    of_the_prompt: ClassVar[re.Pattern[str]] = re.compile(r"(?:prompt|input|cached?)_\w*tokens(?:_details)?")
    """`prompt_tokens` and `prompt_tokens_details` of OpenAI, `prompt_cache_hit_tokens` of DeepSeek, `cached_tokens` of
    Kimi, `cache_read_input_tokens` of Anthropic behind LiteLLM.
    https://api-docs.deepseek.com/api/create-chat-completion"""
