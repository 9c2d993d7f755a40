"""What to search for in a text, and how much of it to return.

Rule: the time is linear in the size of the text, whatever the pattern (RE2, https://github.com/google/re2).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from proxy.errors import BadArtifactQuery

MAX_PATTERN_CHARACTERS: Final = 500
MAX_CONTEXT: Final = 50
"""Lines on each side of a match."""
MAX_HITS: Final = 1_000
CONTEXT: Final = 2
HITS: Final = 50
"""The default."""
_MEMORY_BYTES: Final = 1 << 20
"""For the automaton of a pattern; RE2's own default is 8 MB. A pattern that needs more is refused."""


class Search(Struct, frozen=True):
    """What to look for."""

    pattern: str
    context: int = CONTEXT
    """Lines before and after each match."""
    max_hits: int = HITS

    def __post_init__(self) -> None:
        """Raises BadArtifactQuery."""
        if not 1 <= len(self.pattern) <= MAX_PATTERN_CHARACTERS:
            raise BadArtifactQuery(f"`grep` must have 1 to {MAX_PATTERN_CHARACTERS} characters", param="grep")
        if not 0 <= self.context <= MAX_CONTEXT:
            raise BadArtifactQuery(f"`context` must be 0 to {MAX_CONTEXT} lines", param="context")
        if not 1 <= self.max_hits <= MAX_HITS:
            raise BadArtifactQuery(f"`max` must be 1 to {MAX_HITS} matches", param="max")
        self.compiled()

    def compiled(self) -> Any:
        """The pattern for RE2, line by line. Raises BadArtifactQuery."""
        import re2  # noqa: PLC0415 - 1.6 MB, which a process needs only if somebody searches

        options = re2.Options()
        options.log_errors = False
        options.never_nl = True
        options.max_mem = _MEMORY_BYTES
        try:
            return re2.compile(b"(?m:%b)" % self.pattern.encode(), options)
        except (re2.error, UnicodeEncodeError) as error:
            said = error.args[0].decode("utf-8", "replace") if isinstance(error, re2.error) else str(error)
            raise BadArtifactQuery(
                f"`grep` must be a regular expression as RE2 reads it, without lookaround and backreferences: "
                f"{said.replace(f'(?m:{self.pattern})', self.pattern)[:200]}",
                param="grep",
            ) from None
