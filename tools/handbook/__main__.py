"""`python -m tools.handbook PATH` prints a generated file of the repository; make writes it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from tools.handbook import agents_page, api_page, dependencies, picture, reference, refusals_page, rooms, settings_page

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "config.example.yaml": reference.render,
    "docs/agents.md": agents_page.render,
    "docs/api.md": api_page.render,
    "docs/architecture.svg": picture.render,
    "docs/dependencies.md": dependencies.render,
    "docs/log.md": reference.render_log,
    "docs/metrics.md": reference.render_metrics,
    "docs/refusals.md": refusals_page.render,
    "docs/rooms.md": rooms.render,
    "docs/settings.md": settings_page.render,
    "proxy/dashboard/api.html": api_page.render_page,
}
"""Pages by their paths."""

if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
