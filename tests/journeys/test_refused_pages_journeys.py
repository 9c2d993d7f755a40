"""Refused operator pages: programs get JSON, browsers a page."""

from __future__ import annotations

from typing import Any

import pytest

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("path", ["/", "/docs", "/decisions"])
def test_a_browser_gets_a_page_that_says_what_to_do(path: str, build: Any) -> None:
    world = build()
    foreign = {"host": "<b>evil</b>.example", "accept": BROWSER}
    answer = world.client.get(world.proxies[0].replace("/v1", path), headers=foreign)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "a name in server.host_names" in answer.text
    assert "server.admin_key" in answer.text
    assert "evil" not in answer.text
    assert answer.headers["content-security-policy"] == "default-src 'none'"
    assert answer.headers["x-request-id"]


def test_a_browser_that_may_give_a_password_is_prompted_for_it(build: Any) -> None:
    world = build(server={"admin_key": "k" * 20})
    headers = {"x-forwarded-for": "192.0.2.1", "accept": BROWSER}
    answer = world.client.get(world.proxies[0].replace("/v1", "/"), headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic")
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_a_program_gets_json(accept: str, build: Any) -> None:
    world = build()
    headers = {"host": "evil.example", "accept": accept}
    answer = world.client.get(world.proxies[0].replace("/v1", "/decisions"), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_from_here")
