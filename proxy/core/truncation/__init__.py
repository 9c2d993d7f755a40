"""The reduction of one tool result, looked at by itself."""

from proxy.core.truncation.response import tool_response, with_note
from proxy.core.truncation.strings import CutStrings, JoinTexts, shortened_arguments
from proxy.core.truncation.tool_output import (
    LEAST_SYSTEM_BYTES,
    Sanitise,
    SanitiseText,
    TruncateToolOutput,
    shortened_result,
)

__all__ = [
    "LEAST_SYSTEM_BYTES",
    "CutStrings",
    "JoinTexts",
    "Sanitise",
    "SanitiseText",
    "TruncateToolOutput",
    "shortened_arguments",
    "shortened_result",
    "tool_response",
    "with_note",
]
