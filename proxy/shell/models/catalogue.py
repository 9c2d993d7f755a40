"""Limits of hosted models as published by models.dev, as of the release: 4 800 entries of 130 providers. List prices of
tokens are for the dashboard.

Rule: a wrong model is worse than none, and of several windows the one that certainly holds counts: the upstream's own
entry, else that of the provider named at the beginning of the model's name, else the vendor's, else the smallest. Only
the first is certain: the window that another provider gives a model is a guess, and is marked as one. What a list of
inputs leaves out is not denied: a kind is read or not by the first entry of the model's family, in the same order, that
says so, and unknown if none does. No plan depends
on a price: a model that is not listed, or that runs on a server of one's own, has none.
"""

from __future__ import annotations

import functools
import gzip
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from proxy.core.addresses import is_own_server
from proxy.core.models import (
    Certainty,
    Modality,
    is_uninformative,
    last_part,
    named_in,
    plainest,
    served_at,
    spelling,
    unpacked,
    vendor_of,
)
from proxy.shell.resources import logger
from proxy.wire import MAX_NAME_CHARS, ModelLimits

_SEPARATORS: Final = str.maketrans("", "", " ._:@-")
"""All that a `spelling` leaves out."""


class CatalogueEntry(msgspec.Struct, frozen=True, gc=False):
    """One model at one provider."""

    provider: str
    model: str
    limits: ModelLimits
    place: int


class _File(msgspec.Struct):
    """The index as it was made when the package was built."""

    addresses: dict[str, str]
    """Of the providers' APIs."""
    limits: list[ModelLimits]
    models: dict[str, list[tuple[str, str, int, int]]]
    """Provider, model, index of its limits and place of each entry, by the last part of their names."""


class _Family(NamedTuple):
    """The entries that a name may mean."""

    providers: tuple[str, ...]
    """Those of the upstream, then those that the name contains."""
    vendor: str | None
    """Empty: unknown; None: the name means other models elsewhere."""
    stages: list[list[CatalogueEntry]]
    """The most exact first; an entry may come again."""

    def of(self, provider: str) -> Iterator[list[CatalogueEntry]]:
        """The entries of one provider, the most exact first."""
        for hits in self.stages:
            if own := [entry for entry in hits if entry.provider == provider]:
                yield own


class _Index:
    """All entries by the last part of their names.

    Names that are spelled or packed otherwise are searched for: most clients use the name in the catalogue, and an
    index of all spellings would take as long to make as everything else together.
    """

    def __init__(self, entries: Mapping[str, list[CatalogueEntry]], addresses: Mapping[str, str]) -> None:
        """`addresses`: of the providers' APIs."""
        self.addresses = addresses
        self._entries = entries
        self._bare = [(part.translate(_SEPARATORS), part) for part in entries]

    def stages(self, part: str) -> Iterator[list[CatalogueEntry]]:
        """The entries for a client's name, the most exact first."""
        yield self._entries.get(part, [])
        if part.endswith(":latest"):
            # Ollama's tag for whichever size is its default: `deepseek-r1:latest` has eight of DeepSeek R1's 671
            # billion.
            return
        for plainer in dict.fromkeys((part, unpacked(part), plainest(part))):
            if spelled := spelling(plainer):
                # A spelling leaves out separators and unpacking signs at the ends: no other name can become this one.
                near = [part for bare, part in self._bare if spelled.replace("-", "") in bare]
                yield self._of(part for part in near if spelling(part) == spelled)
                yield self._of(part for part in near if _unpacked_spelling(part) == spelled)

    def _of(self, parts: Iterable[str]) -> list[CatalogueEntry]:
        """The entries of these parts, in the catalogue's order."""
        return sorted((entry for part in parts for entry in self._entries[part]), key=lambda entry: entry.place)


FILE: Final = Path(__file__).parents[2] / "catalogue" / "index.json.gz"
"""Made by tools/build_hooks.py when the package is built or installed."""


def read_file() -> bytes:
    """The index as JSON. Raises OSError, EOFError or zlib.error if the file is missing or broken."""
    return gzip.decompress(FILE.read_bytes())


_UNREADABLE: Final = (OSError, EOFError, zlib.error, msgspec.MsgspecError, LookupError)
_reading: Final = threading.Lock()


MAX_PRICES: Final = 1_024
"""Prices remembered; a model's name is foreign input."""


class Price(NamedTuple):
    """US dollars for a million tokens."""

    prompt: float
    cached: float
    """The part of the prompt read from a cache; the full price if the catalogue states none."""
    reply: float

    def spent(self, prompt_tokens: float, cached_tokens: float, reply_tokens: float) -> float:
        """Cost of these tokens; the cached ones are part of the prompt.

        >>> Price(2.0, 1.0, 8.0).spent(1_000_000, 500_000, 0)
        1.5
        """
        cached = min(cached_tokens, prompt_tokens)
        paid = (prompt_tokens - cached) * self.prompt + cached * self.cached + reply_tokens * self.reply
        return round(paid / 1e6, 6)


class _Prices(msgspec.Struct):
    prices: dict[str, dict[str, Price]]
    """By provider and model."""


class Catalogue:
    """Looks names up for one upstream. Reads nothing before the first name, and what all upstreams share only once;
    safe to use from several threads."""

    def __init__(self, base_url: str, read: Callable[[], bytes] = read_file) -> None:
        self._base_url = base_url
        self._read = read
        self._index: _Index | None = None
        self._here: tuple[str, ...] = ()
        self._own_server = is_own_server(base_url)
        self.price_of = functools.lru_cache(MAX_PRICES)(self._price_of)
        """The price of a model; None if none is known, as on a server of one's own. Reads the catalogue: 15 ms."""

    def load(self) -> _Index:
        """Read the catalogue once; if it cannot be read, it is empty, and an event is logged."""
        with _reading:
            if self._index is None:
                try:
                    index = _index_of(self._read)
                except _UNREADABLE as error:
                    logger().warning("catalogue_unavailable", reason=type(error).__name__)
                    index = _Index({}, {})
                self._here = served_at(self._base_url, index.addresses)
                self._index = index  # last: a thread that sees it needs the rest, too
            return self._index

    def find(self, model: str) -> tuple[ModelLimits, str] | None:
        """The limits of a model and their source, such as `catalogue openai/gpt-4o`; None if the model is unknown.

        The first call reads the catalogue, 15 ms; a later one takes up to 0.5 ms.
        """
        family = self._family(model)
        chosen = None if family is None else self._chosen(model, family)
        if family is None or chosen is None:
            return None
        entry, why, guessed = chosen
        notes = [why] if why else []
        if self._own_server:
            notes.append("a server of your own may be set to less")
        reads, unstated = self._inputs(family)
        limits = msgspec.structs.replace(
            entry.limits,
            modalities=reads,
            unstated=unstated,
            certainty=Certainty.GUESSED if guessed else entry.limits.certainty,
        )
        return limits, f"catalogue {entry.provider}/{entry.model}" + (f" ({'; '.join(notes)})" if notes else "")

    def _price_of(self, model: str) -> Price | None:
        family = None if self._own_server else self._family(model)
        chosen = None if family is None else self._chosen(model, family)
        if chosen is None:
            return None
        try:
            prices = msgspec.json.decode(self._read(), type=_Prices).prices
        except _UNREADABLE:
            return None
        return prices.get(chosen[0].provider, {}).get(chosen[0].model)

    def _family(self, model: str) -> _Family | None:
        """The entries that a name may mean; None for what is no name."""
        if not 0 < len(model) <= MAX_NAME_CHARS:
            return None
        index = self._index or self.load()
        hinted, part = named_in(model, last_part(model), index.addresses)
        vendor = None if is_uninformative(part) else vendor_of(plainest(part))
        return _Family((*self._here, *hinted), vendor, [hits for hits in index.stages(part) if hits])

    def _chosen(self, model: str, family: _Family) -> tuple[CatalogueEntry, str, bool] | None:
        """An entry, why it was chosen among several, and whether it is a guess."""
        for provider in family.providers:
            for own in family.of(provider):
                return _smallest(own, model), "", provider not in self._here
        if family.vendor is None or not family.stages:
            return None
        nearest = family.stages[0]
        own = [entry for entry in nearest if entry.provider == family.vendor]
        several = not own and len({entry.limits.window_tokens for entry in nearest}) > 1
        why = f"the smallest of {len(nearest)} providers" if several else ""
        return _smallest(own or nearest, model), why, True

    def _inputs(self, family: _Family) -> tuple[frozenset[Modality] | None, frozenset[Modality] | None]:
        """The kinds of input that these models read, and those about which nothing is stated. A yes outweighs fewer
        noes, a no fewer entries of any other kind: some providers' entries are sloppy."""
        vendors = () if family.vendor is None else (family.vendor,)
        groups = [own for provider in (*family.providers, *vendors) for own in family.of(provider)]
        if family.vendor is not None:
            groups.append([*{entry.place: entry for hits in family.stages for entry in hits}.values()])
        reads, unstated = set[Modality](), set(Modality)
        for group in groups:
            stated = [entry.limits for entry in group if entry.limits.modalities is not None]
            for kind in (*unstated,):
                said = [kind in (one.modalities or ()) for one in stated if kind not in (one.unstated or ())]
                if sum(said) > len(said) / 2:
                    reads.add(kind)
                elif len(said) - sum(said) <= len(stated) / 2:
                    continue
                unstated.remove(kind)
        return (None, None) if len(unstated) == len(Modality) else (frozenset(reads), frozenset(unstated) or None)


@functools.lru_cache(maxsize=1)
def _index_of(read: Callable[[], bytes]) -> _Index:
    """One for all upstreams, and for the settings that are read again; what cannot be read is tried again."""
    file = msgspec.json.decode(read(), type=_File)
    entries = {
        part: [CatalogueEntry(provider, model, file.limits[at], place) for provider, model, at, place in found]
        for part, found in file.models.items()
    }
    return _Index(entries, file.addresses)


@functools.lru_cache(4_096)  # of all names in the catalogue, as a client may ask for a single letter
def _unpacked_spelling(part: str) -> str:
    return spelling(unpacked(part))


def _smallest(entries: list[CatalogueEntry], model: str) -> CatalogueEntry:
    """The entry spelled exactly like the name, else the one with the smallest window."""
    exact = [entry for entry in entries if entry.model.lower() == model.strip().lower()]
    return min(exact or entries, key=lambda entry: entry.limits.window_tokens or 0)
