"""The text that a model reads instead of an image that could not be fetched.

Rule: the same as for the catalogue. Of a foreign server's response only the status, the media type and the address
without its query are shown: none of them can contain a sentence.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.conversation.references import Unfetched
from proxy.core.notices.catalogue import FETCH_LIMITS, FETCHES, WHY_NOT_FETCHED, Language, say
from proxy.core.notices.media import laid_out

_USER_AND_PASSWORD: Final = re.compile(r"(?<=//)[^/?#]*@")


def not_fetched(address: str, unfetched: Unfetched, language: Language, kept_in: str = "") -> str:
    """The diagnosis for one address. `kept_in`: where the image would be now, as the agent sees it.

    >>> from proxy.core.conversation.references import FetchError
    >>> print(not_fetched("https://example.org/a", Unfetched(FetchError.NOT_FOUND, 404, "https://example.org/b"), "en"))
    [cannot fetch] https://example.org/a
    Status: failed; HTTP code: 404; final URL: https://example.org/b
    Likely reason: there is nothing at this address (any more).
    """
    facts = [say(FETCHES, "status", language)]
    if unfetched.http_code is not None:
        facts.append(say(FETCHES, "http_code", language, http_code=unfetched.http_code))
    if unfetched.final_url:
        facts.append(say(FETCHES, "final_url", language, final_url=unfetched.final_url))
    if unfetched.content_type:
        facts.append(say(FETCHES, "content_type", language, content_type=unfetched.content_type))
    why = say(WHY_NOT_FETCHED, unfetched.obstacle, language)
    if unfetched.limit is not None and unfetched.obstacle in FETCH_LIMITS:
        why += say(FETCH_LIMITS, unfetched.obstacle, language, limit=unfetched.limit)
    reason = say(FETCHES, "reason", language, reason=why)
    if kept_in:
        reason += say(FETCHES, "kept_in", language, kept_in=kept_in)
    title = say(FETCHES, "title", language, address=_USER_AND_PASSWORD.sub("", address))
    return laid_out(title, [say(FETCHES, "and", language).join(facts)], reason)
