from __future__ import annotations

from proxy.config.client_keys import VARIABLES, client_keys
from proxy.shell.artifacts.tenants import KEY_HEADERS


def test_every_variable_that_is_set_is_a_header_that_tells_tenants_apart():
    headers = client_keys(dict.fromkeys(VARIABLES, "secret"))
    assert len(headers) == len(VARIABLES)
    assert {name for name, _ in headers} == KEY_HEADERS
    assert client_keys({}) == client_keys(dict.fromkeys(VARIABLES, "")) == []
