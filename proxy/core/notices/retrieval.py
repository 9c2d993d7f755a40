"""The texts of the proxy's own tool besides the pages that it reads.

Rule: whatever went wrong, the result says what is allowed and what to do next; a model without an answer calls again.
"""

from __future__ import annotations

from typing import Final

from proxy.core.artifact_reading.patterns import MAX_CONTEXT, MAX_PATTERN_CHARACTERS
from proxy.core.notices.catalogue import BAD_QUERIES, HISTORY, NOT_READ, READING, Language, framed, say
from proxy.errors import BadArtifactQuery, ProxyError

_ALLOWED: Final = {"grep": MAX_PATTERN_CHARACTERS, "context": MAX_CONTEXT}
"""The maximum of a parameter, where the text states it."""


def unnamed(language: Language) -> str:
    """The result of a call that names no artifact."""
    return _line("unnamed", language)


def failed(name: str, error: ProxyError, language: Language) -> str:
    """The result of a call whose artifact cannot be read, or not in this way."""
    return _line("failed", language, name=name, problem=_problem(error, language))


def not_searched(error: ProxyError, language: Language) -> str:
    """The result of a search that could not be made."""
    return _line("unsearched", language, problem=_problem(error, language))


def _problem(error: ProxyError, language: Language) -> str:
    param = (error.param or "") if isinstance(error, BadArtifactQuery) else ""
    if param in BAD_QUERIES:
        return say(BAD_QUERIES, param, language, message=error.message, most=_ALLOWED.get(param))
    kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in NOT_READ), "other")
    return say(NOT_READ, kind, language, message=error.message, code=error.code or "")


def too_many(calls: int, language: Language) -> str:
    """The result of a call beyond the number that is answered in one round."""
    return _line("many", language, calls=calls)


def no_room(name: str, language: Language) -> str:
    """The result of a call for whose page there is no room, however small it is."""
    return _line("no_room", language, name=name)


def last_reading(rounds: int, language: Language) -> str:
    """Added to the result in the last round."""
    return "\n" + _line("last", language, rounds=rounds)


def stopped(rounds: int, language: Language) -> str:
    """What the client reads if the model has not said a word and would go on reading for ever."""
    return say(READING, "stopped", language, rounds=rounds)


def withheld(language: Language) -> str:
    """What the client reads if the model has not said a word and its page cannot be shown for lack of room."""
    return say(READING, "withheld", language)


def lacking_result(language: Language) -> str:
    """The result of a call that has none. Without the mark of a notice, which would name an artifact."""
    return say(HISTORY, "lacking", language)


def _line(name: str, language: Language, /, **values: object) -> str:
    return framed(say(READING, name, language, **values)) + "\n"
