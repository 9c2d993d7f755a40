"""Any order of what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

_Item = TypeVar("_Item")


@cache
def _orders(count: int) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(count))


def shuffled(draw: Any, items: Sequence[_Item]) -> list[_Item]:
    """As `draw(st.permutations(items))`, whose strategy would be made for each draw, which costs more than drawing."""
    return [items[place] for place in draw(_orders(len(items)))]
