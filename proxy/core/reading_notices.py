"""The first line of a page that was read from an artifact, in English and Chinese.

Rule: it carries the mark and the artifact's name, by which pages are recognised and never cut again, and the concrete
next call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.grep import Hits
from proxy.core.lines import Page
from proxy.core.notices import MARK, Language

_WORDS: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "page": "lines {first}-{last} of {total} of {name}, {shown:,} of {bytes:,} bytes",
        "cut": "; the page is full, go on with lines={following}",
        "more": "; go on with lines={following}",
        "hits": "{count:,} matches in lines {first}-{last} of {total} of {name}",
        "stopped": "; go on with the same search and lines={following}",
    },
    "zh": {
        "page": "{name} 共 {total} 行、{bytes:,} 字节，此处为第 {first}-{last} 行，{shown:,} 字节",
        "cut": "；本页已满，请用 lines={following} 继续",
        "more": "；继续请用 lines={following}",
        "hits": "{name} 共 {total} 行，在第 {first}-{last} 行中找到 {count:,} 处匹配",
        "stopped": "；请用相同的搜索和 lines={following} 继续",
    },
}


def page_header(page: Page, name: str, language: Language) -> str:
    """Over a page of lines."""
    words = _WORDS[language]
    said = words["page"].format(
        first=page.first,
        last=page.last,
        total=page.total_lines,
        name=name,
        shown=len(page.text),
        bytes=page.total_bytes,
    )
    if page.following is not None:
        said += words["cut" if page.cut else "more"].format(following=page.following)
    return f"{MARK}{said}]\n"


def hits_header(hits: Hits, name: str, language: Language) -> str:
    """Over what a search found."""
    words = _WORDS[language]
    said = words["hits"].format(count=hits.count, first=hits.first, last=hits.last, total=hits.total_lines, name=name)
    if hits.following is not None:
        said += words["stopped"].format(following=hits.following)
    return f"{MARK}{said}]\n"
