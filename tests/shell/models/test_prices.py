"""List prices: the upstream's own, none where none is stated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.shell.models.catalogue import Catalogue, read_package
from proxy.shell.models.prices import Price, Prices, price_in

PACKAGE = {
    "openai": {
        "api": "https://api.openai.com/v1",
        "models": {
            "gpt-9": {"limit": {"context": 100_000}, "cost": {"input": 2, "output": 8, "cache_read": 0.5}},
            "unpriced": {"limit": {"context": 100_000}},
        },
    }
}


def prices(base_url: str = "https://api.openai.com/v1", package: Any = PACKAGE) -> Prices:
    def read() -> bytes:
        return json.dumps(package).encode()

    return Prices(Catalogue(base_url, read), read)


def test_a_model_costs_what_its_upstream_lists() -> None:
    assert prices().of("gpt-9") == Price(2.0, 0.5, 8.0)


def test_what_nobody_prices_costs_nothing_that_is_known() -> None:
    assert prices().of("unpriced") is None
    assert prices().of("never-heard-of") is None
    assert prices("http://127.0.0.1:8000/v1").of("gpt-9") is None, "a server of one's own"


def test_a_catalogue_that_cannot_be_read_has_no_prices() -> None:
    catalogue = Catalogue("https://api.openai.com/v1", lambda: json.dumps(PACKAGE).encode())

    def broken() -> bytes:
        raise OSError

    assert Prices(catalogue, broken).of("gpt-9") is None


@pytest.mark.parametrize("cost", [{}, {"input": "2", "output": 1}, {"input": -1, "output": 1}, {"input": True}])
def test_a_price_that_is_none_is_not_used(cost: dict[str, Any]) -> None:
    assert price_in(cost) is None


def test_the_real_catalogue_prices_its_models() -> None:
    found = Prices(Catalogue("https://api.openai.com/v1"), read_package).of("gpt-4o")
    assert found is not None
    assert 0 < found.cached < found.prompt < found.reply
