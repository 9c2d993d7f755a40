"""`python -m tools.handbook NAME` prints the page or picture `docs/NAME`; make writes it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from tools.handbook import api_page, picture, rooms, settings_page

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "api.md": api_page.render,
    "architecture.svg": picture.render,
    "rooms.md": rooms.render,
    "settings.md": settings_page.render,
}

if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
