"""The addresses of images and files, where parts and structured results name them.

Rule: an address is exactly the text in the message; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.core.conversation.references import REMOTE
from proxy.core.text import jsontext

ADDRESSED: Final = ("url", "file_url", "file_data", "file_id")
"""Where a part of an image or a file names its content. `file_url` is that of the Responses API."""


def addresses_in(content: Any, *, is_result: bool) -> Iterator[str]:
    """The addresses in a `content` whose targets are elsewhere."""
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield from _routed_addresses(text) if is_result else ()
        elif isinstance(part, Mapping):
            yield from _part_addresses(part)


def _part_addresses(part: Mapping[str, Any]) -> Iterator[str]:
    """Files on the web are left to the upstream to fetch or refuse; only images are fetched here."""
    address = address_of(part)
    if address and ("image_url" in part or not REMOTE.match(address)):
        yield address


def _routed_addresses(text: str) -> Iterator[str]:
    """The addresses in a structured result: `{"routing": "image_url", "imageUrl": PART}`, `{"routing": "file", "file":
    …}`, and either with `"artifact": "artifact:ID"` or `content` instead of the part. A `text` is text."""
    if '"routing"' not in text or not text.lstrip().startswith("{"):
        return
    try:
        members = jsontext.members(text.encode("utf-8", "surrogatepass"))
        opened = {
            name: jsontext.value(members[name])
            for name in ("routing", "imageUrl", "file", "artifact", "content")
            if name in members
        }
    except jsontext.NotJson:
        return
    if opened.get("routing") == "image_url":
        if address := address_of(opened.get("imageUrl")):
            yield address
    elif opened.get("routing") != "file":
        return
    for name in ("file", "artifact", "content"):
        address = address_of(opened.get(name))
        if address and not REMOTE.match(address):
            yield address


def address_of(part: Any) -> str:
    """The address in a part of an image or a file, or an empty text: `{"image_url": {"url": …}}`,
    `{"image_url": …}`, `{"file": {"file_data": …}}`, and the inside of such a part alone.

    >>> address_of({"type": "file", "file": {"file_data": "artifact:x"}}), address_of({"url": "u"}), address_of(7)
    ('artifact:x', 'u', '')
    """
    inner = part
    if isinstance(part, Mapping):
        inner = next((part[name] for name in ("image_url", "file") if name in part), part)
    if isinstance(inner, Mapping):
        inner = next((inner[name] for name in ADDRESSED if isinstance(inner.get(name), str)), "")
    return inner if isinstance(inner, str) else ""
