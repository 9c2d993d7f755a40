"""Texts to read, their parts, and what is read of them."""

from __future__ import annotations

from hypothesis import strategies as st

from proxy.core.artifact_reading import Hits, Query, Search, hits_of, read
from proxy.core.notices import Language
from proxy.core.text import BytesOf, LineIndex, LineRange, Span

LINES = st.one_of(
    st.sampled_from([b"", b"a", b"error: b", b"\r", "é\u2028\x85".encode(), b"\xff\xfe", b"x" * 700, b"\x0b\x0c"]),
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
)
PARTS = st.lists(st.tuples(LINES, st.sampled_from([1, 1, 1, 2, 30, 900])), max_size=12)

MANY_BLOCKS = 2_000_000
"""Bytes of the longest texts that are made by repeating; a hundred times as many show nothing more."""


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Some short, some of many blocks, with and without a line feed at the end."""
    lines = [line for line, times in draw(PARTS) for _ in range(times)]
    text = b"\n".join(lines) + draw(st.sampled_from([b"", b"\n"]))
    return text * min(draw(st.sampled_from([1, 1, 1, 40])), max(1, MANY_BLOCKS // (len(text) or 1)))


def bytes_in(text: bytes, spans: list[Span] | None = None) -> BytesOf:
    """Gives parts of a text; the spans that were read are added to a list."""

    def part(span: Span) -> bytes:
        assert 0 <= span[0] < span[1] <= len(text)
        if spans is not None:
            spans.append(span)
        return text[span[0] : span[1]]

    return part


def hits(
    text: bytes,
    pattern: str,
    wanted: str = "1-",
    context: int = 0,
    most: int = 1_000,
    max_bytes: int = 10**9,
    index: LineIndex | None = None,
) -> Hits:
    """What a search in a text finds."""
    index = index or LineIndex.of_text(text)
    return hits_of(index, LineRange.parse(wanted), Search(pattern, context, most), bytes_in(text), max_bytes)


ARTIFACT = "tool_bash_0123456789abcdef.txt"
NUMBERED_LINES = b"".join(b"line %d\n" % number for number in range(1, 20_001))


def answer(language: Language = "en", text: bytes = NUMBERED_LINES, **parameters: str) -> tuple[str, str]:
    """The header of a page of an artifact, and the rest of it."""
    query = Query.parse(parameters)
    assert query is not None
    page = read(LineIndex.of_text(text), query, bytes_in(text), ARTIFACT, language).decode()
    header, _, rest = page.partition("\n")
    return header, rest
