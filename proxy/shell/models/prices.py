"""What tokens cost by the catalogue's list prices, for the dashboard.

Rule: no plan depends on a price. A model that the catalogue does not name, or that runs on a server of one's own, has
none; nothing is guessed from another model's. Prices that rise with the length of a prompt are not modelled.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from proxy.shell.models.catalogue import Catalogue, read_package

MAX_PRICES: Final = 1_024
"""Prices remembered; a model's name is foreign input."""


class Price(NamedTuple):
    """US dollars for a million tokens."""

    prompt: float
    cached: float
    """Of the prompt, read from a cache; the full price if the catalogue states none."""
    reply: float


class _Priced(msgspec.Struct):
    cost: dict[str, Any] = {}


class _Provider(msgspec.Struct):
    models: dict[str, _Priced] = {}


class Prices:
    """The prices at one upstream; to be asked in a thread, as it may read the catalogue, 20 ms."""

    def __init__(self, catalogue: Catalogue, read: Callable[[], bytes] = read_package) -> None:
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
            priced = _provider.decode(raw).models.get(entry.model) if raw is not None else None
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


_provider: Final = msgspec.json.Decoder(_Provider)
