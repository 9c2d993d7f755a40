"""What commands print: a document of the operator's API as JSON, or as lines for people.

Rule: nothing in a document controls the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import to_builtins

_NOTHING: Final = "-"
"""An empty cell."""


def show(found: object, *, as_json: bool) -> None:
    """Print a document; without `as_json` it must be an object."""
    built = to_builtins(found)
    print(json.dumps(built, indent=2) if as_json else "\n".join(lines(built)))


def complain(sentence: str, status: int = 1) -> int:
    """Print what is wrong to standard error; returns the exit status."""
    print(plain(sentence), file=sys.stderr)
    return status


def lines(found: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A document as lines: a list of objects is a table, an object in it is indented, and what is empty is left out.
    Numbers can be copied: into settings, or the one of a process.

    >>> print(*lines({"window": {"value": 8000, "from": "config defaults"}, "of": {"b": True, "long": []}}), sep="\\n")
    window  8000  config defaults
    of
      b     yes
    """
    width = max(map(len, found), default=0)
    for name, value in found.items():
        is_table = isinstance(value, list | tuple) and all(isinstance(row, dict) for row in value)
        if value and (is_table or (isinstance(value, dict) and "from" not in value)):
            below = [*(table if is_table else lines)(value, f"{indent}  ")]
            yield from [f"{indent}{plain(name)}", *below] if below else []
        elif (shown := _shown(value)) != _NOTHING:
            yield f"{indent}{plain(name):<{width}}  {shown}"


def table(rows: Sequence[Mapping[str, Any]], indent: str = "") -> Iterator[str]:
    """Rows with the same members, under their names; numbers to the right.

    >>> print(*table([{"id": "a", "bytes": 12000}, {"id": "bcd", "bytes": None}]), sep="\\n")
    id   bytes
    a    12000
    bcd      -
    """
    cells = [[*rows[0]], *([_shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = [">" if isinstance(value, int | float) else "<" for value in rows[0].values()]
    for line in cells:
        yield (indent + "  ".join(map(format, line, map("{}{}".format, signs, widths)))).rstrip()


def _shown(value: Any) -> str:
    if isinstance(value, dict) and value:
        return f"{_shown(value['value'])}  {plain(value['from'] or '')}".rstrip()
    if isinstance(value, list | tuple) and value:
        return ", ".join(map(_shown, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(str(value)) if value not in (None, "", [], (), {}) else _NOTHING


def plain(text: str) -> str:
    """Foreign text for a terminal: no control characters, and nothing that changes the direction of writing.

    >>> plain("a\\x1b[31m\\u202eb")
    'a\ufffd[31m\ufffdb'
    """
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
