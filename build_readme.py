"""Hatch metadata hook: the README as package indexes show it.

Rule: an index has none of the repository's files, so a link to one leads there only where `project.urls` names the
repository as `Source`; without it the link's text stays and the link goes, and pictures go.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

BRANCH: Final = "main"
_PICTURE: Final = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)\s]+\)\n+", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Runs for each build."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the long description."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text, source)}


def for_an_index(text: str, source: str | None) -> str:
    """The README without links that lead nowhere.

    >>> for_an_index("see [the docs](docs/a.md)", None), for_an_index("see [the docs](docs/a.md)", "https://host/repo")
    ('see the docs', 'see [the docs](https://host/repo/blob/main/docs/a.md)')
    """
    if source is None:
        return _LINK.sub(r"\1", _PICTURE.sub("", text))
    place = f"{source.rstrip('/')}/blob/{BRANCH}"
    text = re.sub(r"(!\[[^\]]*\])\((?!https?:)([^)\s]+)\)", rf"\1({place}/\2?raw=true)", text)
    return _LINK.sub(rf"[\1]({place}/\2)", text)
