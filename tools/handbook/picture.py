"""`docs/architecture.svg`: the house as its imports draw it.

Rule: a box is a room, a row is a layer of the import contract, an arrow is an import that no longer path implies.
Imports from another floor are given as numbers, as arrows across floors would cover everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from tools.handbook.rooms import Room, house, layers, shown_arrows

WIDTH: Final = 920
ROW: Final = 62
"""From the top of a row to the top of the next."""
BOX: Final = 40
MARGIN: Final = 24
FLOOR_HEAD: Final = 44

STYLE: Final = """\
<style>svg{--ink:#1f2328;--line:#59636e;--faint:#9198a1;--room:#ddf4ff;--floor:#f6f8fa}
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--line:#9198a1;--faint:#59636e;--room:#0c2d4a;--floor:#161b22}}
text{font:14px system-ui,sans-serif;text-anchor:middle;fill:var(--ink)}.title{font-weight:600;font-size:16px}
.title{text-anchor:start}.small{font-size:12px}.told{font-size:12px;text-anchor:end}.room{fill:var(--room);stroke:var(--line)}
.floor{fill:var(--floor);stroke:var(--faint)}
path.way{fill:none;stroke:var(--line);stroke-width:1.3;marker-end:url(#tip)}
#tip path{fill:var(--line)}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0 8 4 0 8z"/></marker></defs>"""

FLOOR_TITLES: Final = {"shell": "shell – does", "core": "core – decides"}


@dataclass(frozen=True, slots=True)
class _Box:
    room: Room
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def render() -> str:
    """The picture."""
    drawn: list[str] = []
    height: float = MARGIN
    for row in layers(""):
        floor = row[0]
        if floor in FLOOR_TITLES:
            lines, end = _floor(floor, height)
            drawn += lines
            height = end
        else:
            boxes = _row([house()[name] for name in row if name in house()], height)
            drawn += [line for box in boxes for line in _room(box)]
            height += ROW
    rooms = house().values()
    arrows = sum(len(room.imports) for room in rooms)
    modules = sum(room.modules for room in rooms)
    caption = f"{len(rooms)} rooms, {modules} modules, {arrows} arrows between rooms, all downwards"
    drawn.append(f'<text class="small" x="{WIDTH / 2}" y="{height + 4}">{caption}</text>')
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + MARGIN}" role="img" '
        f'aria-label="The rooms of the proxy and which imports which: {caption}">'
    )
    return "\n".join([opening, STYLE, *drawn, "</svg>"]) + "\n"


def _floor(floor: str, top: float) -> tuple[list[str], float]:
    rows = layers(floor)
    bottom = top + FLOOR_HEAD + len(rows) * ROW - (ROW - BOX) + MARGIN / 2
    boxes: dict[str, _Box] = {}
    for number, row in enumerate(rows):
        found = [house()[f"{floor}.{label}"] for label in row]
        boxes |= {box.room.name: box for box in _row(found, top + FLOOR_HEAD + number * ROW)}
    reported = _imports_caption([box.room for box in boxes.values()])
    lines = [
        f'<rect class="floor" x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{bottom - top}" rx="10"/>',
        f'<text class="title" x="{MARGIN + 14}" y="{top + 27}">{FLOOR_TITLES[floor]}</text>',
        f'<text class="told" x="{WIDTH - MARGIN - 14}" y="{top + 27}">{reported}</text>',
    ]
    arrows = shown_arrows([box.room for box in boxes.values()])
    lines += [_way(boxes[start], boxes[end]) for start, end in arrows]
    lines += [line for box in boxes.values() for line in _room(box)]
    return lines, bottom + (ROW - BOX)


def _imports_caption(rooms: Sequence[Room]) -> str:
    """Number of the floor's imports from other floors."""
    own = {room.name for room in rooms}
    outside = [house()[name] for room in rooms for name in room.imports - own]
    counted = Counter(room.floor or room.label for room in outside)
    return "imports " + " · ".join(f"{name} {times}" for name, times in counted.most_common()) if counted else ""


def _row(rooms: Sequence[Room], y: float) -> list[_Box]:
    """Rooms side by side; pairs leave the middle free, so that arrows past a single room are visible."""
    widths = [max(120.0, 9.0 * len(room.label) + 34) for room in rooms]
    gap = 220.0 if len(rooms) == 2 else 60.0
    x = (WIDTH - sum(widths) - gap * (len(rooms) - 1)) / 2
    boxes = []
    for room, width in zip(rooms, widths, strict=True):
        boxes.append(_Box(room, x, y, width))
        x += width + gap
    return boxes


def _room(box: _Box) -> Iterator[str]:
    title = f"<title>{escape(box.room.purpose)}</title>"
    yield f'<rect class="room" x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{BOX}" rx="6">{title}</rect>'
    yield f'<text x="{box.middle:g}" y="{box.y + 18:g}">{box.room.label}</text>'
    several = "module" if box.room.modules == 1 else "modules"
    yield f'<text class="small" x="{box.middle:g}" y="{box.y + 33:g}">{box.room.modules} {several}</text>'


def _way(start: _Box, end: _Box) -> str:
    top, bottom = start.y + BOX, end.y - 1
    bend = (bottom - top) / 2
    return (
        f'<path class="way" d="M{start.middle:g} {top:g}C{start.middle:g} {top + bend:g} '
        f'{end.middle:g} {bottom - bend:g} {end.middle:g} {bottom:g}"/>'
    )
