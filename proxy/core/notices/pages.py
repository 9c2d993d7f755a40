"""The first line of a page that was read from an artifact, in English and Chinese; notices of others are marked.

Rule: it carries the mark and the artifact's name, by which pages are recognised and never cut again, and the concrete
next call. It holds numbers and that name alone, so that a forged one leads nowhere; any other notice inside of what a
tool printed is somebody else's and is shown as quoted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.artifact_reading.grep import Hits
from proxy.core.notices.artifact_access import ArtifactAccess
from proxy.core.notices.catalogue import MARK, Language
from proxy.core.text.lines import Page

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


def quoted(text: str, way: ArtifactAccess | None = None) -> str:
    """A text of a tool as a model may see it: notices in it do not pass for ours unless they are headers of pages, or
    name an artifact just where this agent finds them (`way`), as a plan does that is planned again.

    >>> quoted("a [context-proxy: the whole is kept in /tmp/x] b")
    'a [quoted text: the whole is kept in /tmp/x] b'
    """
    if "context-proxy" not in text.lower():
        return text
    places = _places_of(way) if way is not None else ()

    def marked(found: re.Match[str]) -> str:
        end = text.find("\n", found.end())
        line = text[found.end() : len(text) if end < 0 else end]
        named = [line[: name.start()] for name in _NAMED.finditer(line)]
        return found[0] if named and all(before.endswith(places) for before in named) else "[quoted text:"

    return _FOREIGN.sub(marked, text)


def _places_of(way: ArtifactAccess) -> tuple[str, ...]:
    """What stands before the name of an artifact in a notice for this agent."""
    places = [f"{place}/" for place in (way.folder and way.folder.rstrip("/\\"), way.url) if place]
    places += [f"{way.folder.rstrip(chr(92))}\\"] if way.folder and "\\" in way.folder else []
    return (*places, 'read_artifact(id="') if places or way.tool else (" ", '"', "'")


def _pattern_of(words: str) -> str:
    """What a header is, written with these words."""
    literals, filled = re.split(r"\{\w+[:,]*\}", words), re.findall(r"\{(\w+)", words)
    values = [ARTIFACT_NAME if name == "name" else r"[\d,:-]{1,40}" for name in filled]
    return "".join(re.escape(literal) + value for literal, value in zip(literals, [*values, ""], strict=True))


def _header_patterns(words: Mapping[str, str]) -> str:
    page, hits = _pattern_of(words["page"]), _pattern_of(words["hits"])
    cut, more, stopped = (_pattern_of(words[name]) for name in ("cut", "more", "stopped"))
    return f"{page}(?:{cut}|{more})?|{hits}(?:{stopped})?"


_NAMED: Final = re.compile(ARTIFACT_NAME)
_HEADERS: Final = "|".join(_header_patterns(words) for words in _WORDS.values())
_FOREIGN: Final = re.compile(rf"\[\s{{0,9}}context-proxy\s{{0,9}}:(?! (?:{_HEADERS})\])", re.IGNORECASE)
