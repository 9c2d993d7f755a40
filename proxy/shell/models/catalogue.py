"""Limits of hosted models as published by models.dev: 4 800 entries of 130 providers, as of the release; and list
prices of tokens, for the dashboard.

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
import itertools
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from proxy.wire import MAX_NAME_CHARS, SMALLEST_WINDOW_TOKENS, ModelLimits, as_tokens, modalities_from

_SEPARATORS: Final = str.maketrans("", "", " ._:@-")
"""All that a `spelling` leaves out."""


class CatalogueEntry(msgspec.Struct, frozen=True, gc=False):
    """One model at one provider."""

    provider: str
    model: str
    limits: ModelLimits
    place: int


class _Listed(msgspec.Struct, gc=False):
    """The members of a models.dev model that are read; the others are skipped, not kept."""

    limit: msgspec.Raw = msgspec.Raw(b"{}")
    modalities: msgspec.Raw = msgspec.Raw(b"{}")
    attachment: Any = None


class _Provider(msgspec.Struct):
    api: Any = None
    models: dict[str, _Listed] = {}


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


FILE: Final = Path(__file__).parents[2] / "catalogue" / "models.json.gz"
"""Filled by tools/build_hooks.py when the package is built or installed."""


def read_file() -> bytes:
    """The JSON of models.dev. Raises OSError, EOFError or zlib.error if the file is missing or broken."""
    return gzip.decompress(FILE.read_bytes())


_reading: Final = threading.Lock()


class Catalogue:
    """Looks names up for one upstream. Reads nothing before the first name, and what all upstreams share only once;
    safe to use from several threads."""

    def __init__(self, base_url: str, read: Callable[[], bytes] = read_file) -> None:
        self._base_url = base_url
        self._read = read
        self._index: _Index | None = None
        self._here: tuple[str, ...] = ()
        self._own_server = is_own_server(base_url)

    def load(self) -> None:
        """Read the catalogue once; if it cannot be read, it is empty, and an event is logged."""
        with _reading:
            if self._index is not None:
                return
            try:
                index = _index_of(self._read)
            except (OSError, EOFError, zlib.error, ImportError, msgspec.MsgspecError, RecursionError) as error:
                logger().warning("catalogue_unavailable", reason=type(error).__name__)
                index = _Index({}, {})
            self._here = served_at(self._base_url, index.addresses)
            self._index = index  # last: a thread that sees it needs the rest, too

    def find(self, model: str) -> tuple[ModelLimits, str] | None:
        """The limits of a model and their source, such as `catalogue openai/gpt-4o`; None if the model is unknown.

        The first call reads the catalogue, 20 ms; a later one takes up to 0.5 ms.
        """
        family = self._family(model)
        chosen = None if family is None else self._chosen(model, family)
        if family is None or chosen is None:
            return None
        entry, why, guessed = chosen
        limits, source = self._limits_and_source(entry, why, guessed=guessed)
        reads, unstated = self._inputs(family)
        return msgspec.structs.replace(limits, modalities=reads, unstated=unstated), source

    def entry_of(self, model: str) -> CatalogueEntry | None:
        """The entry for a model, whether it is certain or not; None on a server of one's own, which no list prices."""
        family = None if self._own_server else self._family(model)
        chosen = None if family is None else self._chosen(model, family)
        return None if chosen is None else chosen[0]

    def _family(self, model: str) -> _Family | None:
        """The entries that a name may mean; None for what is no name."""
        if not 0 < len(model) <= MAX_NAME_CHARS:
            return None
        if self._index is None:
            self.load()
        assert self._index is not None
        hinted, part = named_in(model, last_part(model), self._index.addresses)
        vendor = None if is_uninformative(part) else vendor_of(plainest(part))
        return _Family((*self._here, *hinted), vendor, [hits for hits in self._index.stages(part) if hits])

    def _chosen(self, model: str, family: _Family) -> tuple[CatalogueEntry, str, bool] | None:
        """An entry, why it was chosen among several, and whether it is a guess."""
        for provider in family.providers:
            for own in family.of(provider):
                return _smallest(own, model), "", provider not in self._here
        if family.vendor is None:
            return None
        for hits in family.stages:
            if own := [entry for entry in hits if entry.provider == family.vendor]:
                return _smallest(own, model), "", True
            several = len({entry.limits.window_tokens for entry in hits}) > 1
            why = f"the smallest of {len(hits)} providers" if several else ""
            return _smallest(hits, model), why, True
        return None

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

    def _limits_and_source(self, entry: CatalogueEntry, why: str, *, guessed: bool) -> tuple[ModelLimits, str]:
        notes = [why] if why else []
        if self._own_server:
            notes.append("a server of your own may be set to less")
        limits = msgspec.structs.replace(entry.limits, certainty=Certainty.GUESSED) if guessed else entry.limits
        return limits, f"catalogue {entry.provider}/{entry.model}" + (f" ({'; '.join(notes)})" if notes else "")


_members: Final = msgspec.json.Decoder(dict[str, Any])


@functools.lru_cache(maxsize=1)
def _index_of(read: Callable[[], bytes]) -> _Index:
    """One for all upstreams, and for the settings that are read again; what cannot be read is tried again."""
    return _build(read())


def _build(text: bytes) -> _Index:
    entries: dict[str, list[CatalogueEntry]] = {}
    addresses: dict[str, str] = {}
    part_of = functools.cache(last_part)  # most names occur at several providers
    limits_of = functools.cache(_limits)  # and so do their limits, spelled alike
    places = itertools.count()
    same: dict[ModelLimits, ModelLimits] = {}  # one object for all equal ones
    # One provider after another: the memory used to read one is free for the next, which saves 3 MB for good.
    for provider, raw in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        listed = msgspec.json.decode(raw, type=_Provider)
        addresses[provider] = listed.api if isinstance(listed.api, str) else ""
        for model, facts in listed.models.items():
            limits = limits_of(bytes(facts.limit), bytes(facts.modalities), facts.attachment is False)
            if limits is not None:
                entry = CatalogueEntry(provider, model, same.setdefault(limits, limits), next(places))
                entries.setdefault(part_of(model), []).append(entry)
    return _Index(entries, addresses)


def _limits(limit: bytes, modalities: bytes, takes_no_files: bool) -> ModelLimits | None:
    """The limits from two members of a model, as JSON; None for models that do not chat: images, speech, embeddings
    with their tiny windows. `takes_no_files`: whether it states that nothing can be attached, which counts beside a
    list of text alone. Any other list is what somebody knew of, often without PDFs."""
    tokens, media = _members.decode(limit), _members.decode(modalities)
    spoken = media.get("output")
    window = as_tokens(tokens.get("context"))
    if window is None or window < SMALLEST_WINDOW_TOKENS or (isinstance(spoken, list) and "text" not in spoken):
        return None
    prompt = as_tokens(tokens.get("input"))
    # Some providers repeat the window as the input limit.
    prompt = prompt if prompt is not None and SMALLEST_WINDOW_TOKENS <= prompt < window else None
    reads = modalities_from(media.get("input"))
    is_all = reads is None or (takes_no_files and reads == {Modality.TEXT})
    unstated = frozenset(Modality) - {Modality.TEXT, *(reads or ())}
    return ModelLimits(window, prompt, as_tokens(tokens.get("output")), reads, None if is_all else unstated)


@functools.lru_cache(4_096)  # of all names in the catalogue, as a client may ask for a single letter
def _unpacked_spelling(part: str) -> str:
    return spelling(unpacked(part))


def _smallest(entries: list[CatalogueEntry], model: str) -> CatalogueEntry:
    """The entry spelled exactly like the name, else the one with the smallest window."""
    exact = [entry for entry in entries if entry.model.lower() == model.strip().lower()]
    return min(exact or entries, key=lambda entry: entry.limits.window_tokens or 0)


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


class _Priced(msgspec.Struct):
    cost: dict[str, Any] = {}


class _PricedModels(msgspec.Struct):
    models: dict[str, _Priced] = {}


class Prices:
    """The prices at one upstream; call it in a thread, as it may read the catalogue, 20 ms."""

    def __init__(self, catalogue: Catalogue, read: Callable[[], bytes] = read_file) -> None:
        self._catalogue = catalogue
        self._read = read
        self.of = functools.lru_cache(MAX_PRICES)(self._price_of)
        """The price of a model; None if none is known."""

    def _price_of(self, model: str) -> Price | None:
        entry = self._catalogue.entry_of(model)
        if entry is None:
            return None
        try:
            raw = msgspec.json.decode(self._read(), type=dict[str, msgspec.Raw]).get(entry.provider)
            priced = msgspec.json.decode(raw, type=_PricedModels).models.get(entry.model) if raw is not None else None
        except (OSError, EOFError, zlib.error, ImportError, msgspec.MsgspecError, RecursionError):
            return None
        return None if priced is None else price_in(priced.cost)


def price_in(cost: Mapping[str, Any]) -> Price | None:
    """The price that an entry of the catalogue states.

    >>> price_in({"input": 2.5, "cache_read": 1.25, "output": 10})
    Price(prompt=2.5, cached=1.25, reply=10.0)
    >>> price_in({"input": 2.5})
    """
    prompt, reply = _dollars(cost.get("input")), _dollars(cost.get("output"))
    if prompt is None or reply is None:
        return None
    cached = _dollars(cost.get("cache_read"))
    return Price(prompt, prompt if cached is None else cached, reply)


def _dollars(found: Any) -> float | None:
    is_price = isinstance(found, int | float) and not isinstance(found, bool) and found >= 0
    return float(found) if is_price else None
