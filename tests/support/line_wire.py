"""A made-up API whose messages are lines of text and no JSON at all: what the core can do, it can do for this one.

    assistant read_file grep
    = {"path": "a.py"}
    = {"pattern": "parse"}
    > I look at it.

    tool
    > def parse(): …
    ! data:image/png;base64,…

    tool grep
    > a.py:1

Head: role and the tools it calls, or the tool whose result it is, if it says so. Nothing names a call: results are in
the order of the calls. Then `=` the arguments of the calls in order, `>` the lines of a text, `!` an image, here or at
an address. A part is a run of lines with one sign.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from proxy.core.content_types import data_url, is_address, last_of
from proxy.core.conversation import (
    Address,
    Argument,
    Attachment,
    Carried,
    Content,
    ImageView,
    Item,
    Part,
    Parts,
    Reasoning,
    Replacement,
    Shape,
    Shown,
    ToolCall,
    Words,
    paired_by_order,
)
from proxy.wire.media import with_replaced

ALL = "all"
"""The address of everything that a message says."""


@dataclass(frozen=True)
class LineMessage:
    """One message of this API."""

    raw: bytes
    answers: str = ""
    """The call whose result it is: the first one of a message is `1`."""
    reasoning_bytes: int = 0
    is_companion: bool = False
    must_stay: bool = False
    is_marked: bool = False
    takes_notes_apart: bool = False
    may_hold_media: bool = True
    can_carry_a_note: bool = True

    @property
    def _head(self) -> list[str]:
        return self.raw.decode().split("\n", 1)[0].split()

    @property
    def _runs(self) -> list[tuple[str, str]]:
        """Sign and text of each part."""
        lines = enumerate(self.raw.decode().split("\n")[1:])
        runs = itertools.groupby(lines, key=lambda found: (found[1][:1], found[0] if found[1][:1] == "=" else 0))
        return [(sign, "\n".join(line[2:] for _, line in found)) for (sign, _), found in runs]

    @property
    def role(self) -> str:
        return self._head[0]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        names = enumerate(self._head[1:] if self.role == "assistant" else (), start=1)
        return tuple(ToolCall(str(place), tool) for place, tool in names)

    @property
    def name(self) -> str:
        return self._head[1] if self.role == "tool" and len(self._head) > 1 else ""

    @property
    def images(self) -> int:
        return sum(sign == "!" for sign, _ in self._runs)

    def text(self) -> str:
        return "\n".join(text for sign, text in self._runs if sign != "!")

    def texts(self) -> Iterator[tuple[Address, str]]:
        return ((place, text) for place, (sign, text) in enumerate(self._runs) if sign == ">")

    def arguments(self) -> Iterator[Argument]:
        written = [(place, text) for place, (sign, text) in enumerate(self._runs) if sign == "="]
        return (Argument(place, call.id, text) for (place, text), call in zip(written, self.calls, strict=False))

    def thoughts(self) -> Iterator[tuple[Address, str]]:
        return iter(())

    def reasoning(self) -> Iterator[Reasoning]:
        return iter(())

    def parts(self) -> tuple[Address, Sequence[Part]]:
        return ALL, [_part(sign, text) for sign, text in self._runs]

    def media(self) -> Sequence[ImageView | None]:
        return [ImageView(text, None) for sign, text in self._runs if sign == "!"]

    def addresses(self) -> Iterator[str]:
        return (text for sign, text in self._runs if sign == "!" and is_address(text))

    def with_replaced(self, text: str, replace: Callable[[Attachment], Replacement | None]) -> str:
        return with_replaced(text, replace)

    def changed(self, changes: Mapping[Address, Content]) -> Self:
        whole = changes.get(ALL)
        if isinstance(whole, Parts):
            return self._saying(whole.items)
        runs = [_written(sign, changes.get(place, text)) for place, (sign, text) in enumerate(self._runs)]
        return self.again("\n".join([" ".join(self._head), *runs]).encode())

    def with_note(self, note: str, *, after: bool) -> tuple[Address, Content]:
        parts = [Carried(part.raw) for part in self.parts()[1]]
        return ALL, Parts((*parts, Words(note)) if after else (Words(note), *parts))

    def beside(self, role: str, items: Sequence[Item] | str) -> Self:
        made = replace(self, raw=role.encode(), answers="")
        return made._saying([Words(items)] if isinstance(items, str) else items)

    def can_hold(self, shown: Shown) -> bool:
        return True

    def images_among(self, items: Sequence[Item]) -> int:
        return sum(_line_of(item).startswith("!") for item in items)

    def unsealed(self) -> Self:
        return self

    def unmarked(self) -> bytes:
        return self.raw

    def again(self, raw: bytes) -> Self:
        return replace(self, raw=raw)

    def _saying(self, items: Sequence[Item]) -> Self:
        return self.again("\n".join([" ".join(self._head), *map(_line_of, items)]).encode())


def paired(messages: Iterable[LineMessage]) -> list[LineMessage]:
    """The messages, each result with the call that it answers."""
    return list(paired_by_order(messages, lambda result, answers: replace(result, answers=answers)))


def _part(sign: str, text: str) -> Part:
    raw = _written(sign, text).encode()
    if sign != "!":
        return Part(raw, text if sign == ">" else None)
    if is_address(text):
        return Part(raw, None, Attachment(Shape.IMAGE, address=text, name=last_of(text)))
    url = data_url(text)
    assert url is not None
    return Part(raw, None, Attachment(Shape.IMAGE, url.payload, url.declared, is_data_url=True))


def _line_of(item: Item) -> str:
    if isinstance(item, Carried):
        return item.raw.decode()
    if isinstance(item, Shown):
        return f"! data:{item.found.mime};base64,{base64.b64encode(item.content or b'').decode()}"
    return _written(">", item.text)


def _written(sign: str, text: Content) -> str:
    assert isinstance(text, str)
    return "\n".join(f"{sign} {line}" for line in text.split("\n"))
