"""Commands that find no settings of who runs the tests."""

import os

import pytest

from proxy.commands.agents import API_OF
from proxy.config import ENV_ALIASES, ENV_PREFIX, VARIABLES

UNWANTED = {*ENV_ALIASES, *API_OF, *VARIABLES, "ENABLE_TOOL_SEARCH"}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in list(os.environ):
        if name in UNWANTED or name.upper().startswith(ENV_PREFIX) or name.lower() in ("http_proxy", "all_proxy"):
            monkeypatch.delenv(name)
