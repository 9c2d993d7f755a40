"""The sections of the catalogue: every phrase that is put before a model."""

from __future__ import annotations

from typing import Final

from proxy.core.notices import catalogue
from proxy.core.notices.catalogue import Phrases

SECTIONS: Final[dict[str, Phrases]] = {
    name: found for name, found in vars(catalogue).items() if isinstance(found, dict) and name.isupper()
}
del SECTIONS["TOOL"], SECTIONS["SEARCH_TOOL"]  # English alone
IN_ENGLISH_BY_AN_ERROR: Final = frozenset({"BAD_QUERIES", "NOT_READ"})
