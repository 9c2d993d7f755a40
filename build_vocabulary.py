"""Hatch build hook: copies the vocabularies of OpenAI's encodings into `proxy/vocabulary/`.

Rule: what is copied is byte for byte what tiktoken would download, proved by the hashes that tiktoken itself uses.

They stand in the wheel of bpe-openai, which is needed to build and never to run. The files are named as in a cache of
tiktoken (sha1 of their address), so that TIKTOKEN_CACHE_DIR may point there, too.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER: Final = "proxy/vocabulary"
ADDRESS: Final = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
SHA256: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""From tiktoken_ext/openai_public.py."""


class VocabularyHook(BuildHookInterface[Any]):
    """Runs before each build: wheel, sdist and editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's signature
        """Fills the folder and says that its files belong into the package although git ignores them."""
        copy_vocabularies(Path(self.root) / FOLDER)
        build_data["artifacts"].append(f"/{FOLDER}/*")


def copy_vocabularies(folder: Path) -> None:
    """Writes each vocabulary that is not there yet. Raises ValueError for contents that are not tiktoken's."""
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


def _packaged(name: str) -> bytes:
    """Read without importing bpe_openai, which would load an extension of 74 MB and its own copies."""
    packed = importlib.metadata.distribution("bpe-openai").locate_file(f"bpe_openai/data/{name}.tiktoken.gz")
    return gzip.decompress(Path(str(packed)).read_bytes())


if __name__ == "__main__":
    copy_vocabularies(Path(__file__).parent / FOLDER)
    sys.stdout.write(f"{FOLDER} is complete\n")
