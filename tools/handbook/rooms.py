"""The rooms of the house and their imports, read from the sources; `docs/rooms.md` is the table of them.

Rule: nothing is imported to be examined. A room is a package of `proxy/core` or `proxy/shell`, or a package or module
directly in `proxy`; the floors and their order are those of the import contract in `pyproject.toml`.
"""

from __future__ import annotations

import ast
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FLOORS: Final = ("core", "shell")
"""Packages whose packages are rooms of their own."""

HEAD: Final = """\
# The rooms

Written by `make docs/rooms.md` from the sources. A room is a package; [architecture](architecture.md) has the picture.
The import contract in `pyproject.toml` lists them in the same order: a room may import only what is below it, and
`make check` fails otherwise.
"""


@dataclass(frozen=True, slots=True)
class Room:
    """One box of the picture."""

    name: str
    """Below `proxy`, such as `core.text` or `app`."""
    modules: int
    """Python files, without an `__init__` that has only a docstring and the names that its package offers."""
    purpose: str
    """The first sentence of its docstring."""
    imports: frozenset[str]
    """Names of other rooms."""

    @property
    def floor(self) -> str:
        """`core`, `shell` or, for rooms directly in `proxy`, nothing."""
        floor, _, room = self.name.partition(".")
        return floor if room else ""

    @property
    def label(self) -> str:
        """Its name on its floor."""
        return self.name.rpartition(".")[2]


@cache
def house() -> Mapping[str, Room]:
    """Every room by its name."""
    files: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        if (name := room_of(_module(path))) is not None:
            files.setdefault(name, []).append(path)
    rooms = {name: _room(name, paths, files.keys() - {name}) for name, paths in files.items()}
    return {name: room for name, room in rooms.items() if room.modules}  # not a folder of pages, such as the dashboard


def room_of(module: str) -> str | None:
    """The room that a module belongs to; None for `proxy` itself, its two floors and everything outside it.

    >>> room_of("proxy.core.text.excerpt"), room_of("proxy.app"), room_of("proxy.core"), room_of("re")
    ('core.text', 'app', None, None)
    """
    top, *rest = module.split(".")
    if top != "proxy" or not rest or (rest[0] in FLOORS and len(rest) == 1):
        return None
    return ".".join(rest[:2] if rest[0] in FLOORS else rest[:1])


def layers(container: str) -> list[list[str]]:
    """The rows of the import contract of `proxy` (an empty `container`), `core` or `shell`, from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and contract["containers"] == ([f"proxy.{container}"] if container else []):
            rows = [[part.strip() for part in layer.split("|")] for layer in contract["layers"]]
            own = [[name.removeprefix("proxy.") for name in row if _is_drawn(name)] for row in rows]
            return [row for row in own if row]
    raise LookupError(f"pyproject.toml has no import contract for proxy.{container}")


def _is_drawn(layer: str) -> bool:
    """Whether a layer of the contract is part of the proxy; the tools beside it are not."""
    return not layer.startswith("tools")


def shown_arrows(rooms: Sequence[Room]) -> list[tuple[str, str]]:
    """Imports among these rooms, without those that a longer path implies: what a newcomer needs to see."""
    names = {room.name for room in rooms}
    direct = {room.name: room.imports & names for room in rooms}
    return [
        (name, other)
        for name, others in direct.items()
        for other in sorted(others)
        if not any(other in _reached(between, direct) for between in others - {other})
    ]


def _reached(start: str, direct: Mapping[str, frozenset[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in direct[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(name: str, paths: Sequence[Path], others: Set[str]) -> Room:
    trees = {path: ast.parse(path.read_text()) for path in paths}
    says = min(paths, key=lambda path: (path.name != "__init__.py", len(path.parts)))
    imports = {room_of(module) or "" for path, tree in trees.items() for module in _imported(path, tree)}
    modules = sum(path.name != "__init__.py" or _has_code(tree) for path, tree in trees.items())
    return Room(name, modules, _first_sentence(trees[says]), frozenset(imports & others))


def _has_code(tree: ast.Module) -> bool:
    """Whether a file has more than a docstring, imports and `__all__`."""
    _, *rest = tree.body
    return any(
        not isinstance(one, ast.Import | ast.ImportFrom)
        and not (isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__")
        for one in rest
    )


def _imported(path: Path, tree: ast.Module) -> Iterator[str]:
    """Modules that a file imports; of `from proxy.core import text` each name, as it may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _first_sentence(tree: ast.Module) -> str:
    text = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".") + "."


def render() -> str:
    """The page."""
    rooms = house()
    lines = [HEAD]
    floors = {"": "Above, between and below the floors", "shell": "shell: does", "core": "core: decides"}
    for floor, title in floors.items():
        lines += [f"## {title}", "", "| room | modules | what is in it |", "|---|---:|---|"]
        for label in itertools.chain.from_iterable(layers(floor)):
            if (room := rooms.get(f"{floor}.{label}" if floor else label)) is not None:
                lines.append(f"| `{room.label}` | {room.modules} | {room.purpose} |")
        lines.append("")
    return "\n".join(lines)
