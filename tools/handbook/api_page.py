"""`docs/api.md`: the endpoints as `/openapi.json` describes them, in the HTML of the page at `/docs`.

Rule: no proxy is started: a description needs the routes, not the services that they use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.shell.endpoints.api import api_sections, create_api

HEAD: Final = """\
# API

Written by `make docs/api.md` from what the proxy serves at `/openapi.json`; a running proxy shows the same at `/docs`.
[Endpoints](endpoints.md) says who needs no key, and what agents get.
"""


def described() -> Mapping[str, Any]:
    """The content of `/openapi.json`."""
    return create_api().openapi()


def render() -> str:
    """The page."""
    return "\n".join([HEAD, *api_sections(described())]) + "\n"
