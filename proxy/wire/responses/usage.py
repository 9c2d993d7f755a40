"""What the Responses API calls the counts of the upstream. Codex decides by those of the prompt when to compact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from proxy.wire.rounds_usage import RoundsUsage


class ResponseUsage(RoundsUsage):
    """The usage of one response, round by round."""

    totals_of: ClassVar[Mapping[str, str]] = {
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "total_tokens": "total_tokens",
    }
    of_the_prompt: ClassVar[re.Pattern[str]] = re.compile(r"input_tokens(?:_details)?")
