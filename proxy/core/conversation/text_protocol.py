"""Tool output in user messages: agents that use a text protocol have no other place for it.

Rule: a text is recognised by itself and by the messages before it, never by those that follow. This decides which
messages go together and which are quoted as a person's words, never what is lost.
"""

from __future__ import annotations

import re
from typing import Final

_MAX_QUOTED_CHARACTERS: Final = 4_000
"""People send longer messages, but most of these are pasted."""
_OPENING_CHARACTERS: Final = 80
_MIN_OPENING_CHARACTERS: Final = 4
_OPENS_OUTPUT: Final = re.compile(
    r"(?:"
    r"<(?:output|returncode|stdout|stderr|results?|observations?|tool_(?:response|result|output)|function_results?|"
    r"command_output|execution_results?|terminal_output|error|warnings?)\b"
    r"|[\[(*#\s]*(?:observations?|call id|(?:tool|command|terminal|shell|execution|function|code)[ _]"
    r"(?:outputs?|results?|response|logs?)|outputs?|results?|stdout|stderr|exit (?:code|status)|return ?code)\b"
    r"[^\n]{0,60}?[:\])]"
    r"|execution result of \["
    r"|```"
    r"|(?:观察|工具(?:输出|结果|返回)|命令输出|执行结果|运行结果|输出|结果)[^\n]{0,20}?[：:]"
    r")",
    re.IGNORECASE,
)
"""How mini-swe-agent, smolagents, OpenHands, SWE-agent, LangChain's ReAct prompt and home-made agent loops begin tool
output, after blanks: two repetitions that both take blanks would try each division of a long run of them."""


def opens_as_output(text: str) -> bool:
    """Whether a text begins like the output of a tool.

    >>> opens_as_output("<returncode>0</returncode>"), opens_as_output("Observation: 3 files")
    (True, True)
    >>> opens_as_output("Please go on.")
    False
    """
    return _OPENS_OUTPUT.match(text, len(text) - len(text.lstrip())) is not None


def opening(text: str) -> str:
    """How a text begins, ignoring numbers: an agent puts the same words before every output. Empty if the text is too
    short to decide.

    >>> opening("[step 12] ran:\\nok") == opening("[step 7] ran:\\nfailed")
    True
    """
    line = text.lstrip().partition("\n")[0][:_OPENING_CHARACTERS]
    return re.sub(r"\d+", "0", line) if len(line) >= _MIN_OPENING_CHARACTERS else ""


def is_quotable(text: str) -> bool:
    """Whether a text was probably written by a person and is short enough that its beginning may be quoted."""
    return 0 < len(text) <= _MAX_QUOTED_CHARACTERS and not opens_as_output(text)
