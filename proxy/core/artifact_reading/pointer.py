"""JSON pointers (RFC 6901): the part of a JSON text at a path.

Rule: the part keeps its bytes, so numbers and escapes are those of the original; a string is returned as its text. A
pointer also leads into a string that is JSON itself, as the arguments of tool calls are.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.text import jsontext
from proxy.core.text.jsontext import Raw
from proxy.errors import BadArtifactQuery

MAX_POINTER_CHARACTERS: Final = 1_000
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def part_at(text: bytes, pointer: str) -> bytes:
    r"""The part of a JSON text that a pointer names. Raises BadArtifactQuery.

    >>> part_at(b'{"a/b": [1, {"": 2.50}]}', "/a~1b/1/"), part_at(b'["x\\u000ay"]', "/0")
    (b'2.50', b'x\ny')
    >>> part_at(b'{"arguments": "{\\"content\\": \\"a\\\\nb\\"}"}', "/arguments/content")
    b'a\nb'
    """
    if len(pointer) > MAX_POINTER_CHARACTERS or not _POINTER.fullmatch(pointer):
        raise _refused(
            f"`json` must be a JSON pointer of at most {MAX_POINTER_CHARACTERS:,} characters, such as "
            "/messages/3/content, with ~1 for a slash in a name and ~0 for a tilde"
        )
    found: Raw = text
    steps = pointer.split("/")[1:]
    for depth, step in enumerate(steps):
        found = _step(
            found, step.replace("~1", "/").replace("~0", "~"), "/".join(["", *steps[:depth]]) or "the artifact"
        )
    try:
        value = jsontext.value(found) if not steps or bytes(found).startswith(b'"') else None
    except jsontext.NotJson as error:
        raise _refused(f"the artifact is not JSON: {error}") from None
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(found)


def _step(raw: Raw, name: str, where: str) -> Raw:
    try:
        if bytes(raw).lstrip().startswith(b'"'):
            raw = jsontext.value(raw).encode("utf-8", "surrogatepass")
        first = bytes(raw).lstrip()[:1]
        if first == b"{":
            members = jsontext.members(raw)
            if name in members:
                return members[name]
            raise _refused(f"there is no such member in {where}, an object with {len(members):,} members")
        if first == b"[":
            items = jsontext.items(raw)
            if _INDEX.fullmatch(name) and int(name) < len(items):
                return items[int(name)]
            raise _refused(
                f"there is no such item in {where}, an array of {len(items):,} items that are counted from 0"
            )
        jsontext.value(raw)
    except jsontext.NotJson as error:
        raise _refused(f"{where} is not JSON: {error}") from None
    raise _refused(f"{where} is neither an object nor an array")


def _refused(message: str) -> BadArtifactQuery:
    return BadArtifactQuery(message, param="json")
