"""The operator API's own description matches its responses."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from pydantic import TypeAdapter
from support.journey import KEY, World, at, call, long_text, one_call, result
from support.upstream import Sent

from proxy.shell.artifacts import ArtifactStat
from proxy.shell.endpoints import NotReady, create_api
from proxy.shell.relay import Relay
from proxy.wire import Refusal

PATHS = {
    **dict.fromkeys(("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/responses/compact"), "post"),
    **dict.fromkeys(("/api/chat", "/api/generate", "/v1/compress", "/v1/retrieve"), "post"),
    **dict.fromkeys(("/v1/retrieve/{hash}", "/v1/{path}", "/api/{path}"), "get"),
    **dict.fromkeys(("/mcp", "/-/reload", "/explain"), "post"),
    **dict.fromkeys(("/-/status", "/healthz", "/readyz", "/metrics", "/overview", "/conversations", "/events"), "get"),
    **dict.fromkeys(("/decisions", "/decisions/{request_id}", "/artifacts/{name}"), "get"),
    **dict.fromkeys(("/", "/openapi.json", "/docs", "/dashboard/{name}"), "get"),
}
"""The operation of each that is looked at; two paths have several."""

TYPES = {
    kind.__name__: kind
    for kind in (
        *(ArtifactStat, Refusal, NotReady),
        *(route.response_model for route in iter_route_contexts(create_api().routes) if route.methods),
    )
    if kind is not None
}


def described(world: World) -> dict[str, Any]:
    found: dict[str, Any] = at(world, "/openapi.json").json()
    return found


def check(api: dict[str, Any], path: str, answer: httpx.Response) -> None:
    """Holds an answer against the description of its path, status and type."""
    operation = api["paths"][path][PATHS[path]]
    responses, status = operation["responses"], str(answer.status_code)
    response = responses[status] if status in responses else responses["4XX"]
    content = response["content"][answer.headers["content-type"]]
    name = content["schema"]["$ref"].rpartition("/")[2]
    assert set(api["components"]["schemas"][name]["properties"]) >= set(answer.json())
    TypeAdapter(TYPES[name]).validate_json(answer.content, strict=True)


def conversation(turns: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Why is the build red? " * 100}]
    for number in range(turns):
        messages += [call(number), result(number, long_text(3_000 if number == 2 else 120, f"turn-{number}"))]
    return {"model": "m", "messages": messages}


def test_every_operator_path_is_described_with_its_parameters(build: Any) -> None:
    api = described(build())
    assert {path: next(iter(methods)) for path, methods in api["paths"].items()} == PATHS
    for path, methods in api["paths"].items():
        operation = methods[PATHS[path]]
        assert operation["summary"], path
        assert operation["description"], path
        assert all(
            parameter["description"] for parameter in operation.get("parameters", ()) if parameter["in"] != "path"
        )
    limit = api["paths"]["/decisions"]["get"]["parameters"][0]["schema"]
    assert (limit["type"], limit["minimum"], limit["maximum"], limit["default"]) == ("integer", 1, 500, 50)
    schemas = {one["name"]: one["schema"] for one in api["paths"]["/artifacts/{name}"]["get"]["parameters"]}
    assert set(schemas) == {"name", "lines", "grep", "context", "max", "json", "stat", "instead", "range"}
    assert (schemas["max"]["minimum"], schemas["max"]["maximum"]) == (1, 1000)


def test_the_bounds_that_are_described_are_those_that_are_checked(build: Any) -> None:
    world = build()
    world.ask(conversation(4))
    api = described(world)
    name = next(iter(world.kept))
    headers = {"authorization": f"Bearer {KEY}"}
    for parameter in api["paths"]["/artifacts/{name}"]["get"]["parameters"]:
        schema = parameter["schema"]
        if parameter["name"] not in ("context", "max"):
            assert schema["type"] == "string"
            continue
        for value, status in (
            (schema["minimum"], 200),
            (schema["maximum"], 200),
            (schema["minimum"] - 1, 400),
            (schema["maximum"] + 1, 400),
        ):
            query = {"grep": "turn", parameter["name"]: value}
            answer = at(world, f"/artifacts/{name}", params=query, headers=headers)
            assert answer.status_code == status, query


def test_status_answers_are_as_described(build: Any, tmp_path: Any) -> None:
    (tmp_path / "file").write_text("in the way")
    world = build(proxies=[{}, {"artifacts": {"folder": tmp_path / "file" / "kept"}}])
    api = described(world)
    for path in ("/healthz", "/readyz"):
        check(api, path, at(world, path))
    not_ready = world.client.get(world.proxies[1].replace("/v1", "/readyz"))
    assert not_ready.status_code == 503
    check(api, "/readyz", not_ready)
    metrics = at(world, "/metrics")
    assert metrics.headers["content-type"] in api["paths"]["/metrics"]["get"]["responses"]["200"]["content"]


def test_decisions_are_as_described_however_their_requests_ended(build: Any) -> None:
    world = build(8_000)
    for turns in range(1, 9):
        world.ask(conversation(turns), x_request_id=f"turn-{turns}")
    world.ask(b"{", x_request_id="unreadable")
    world.ask({"model": "m", "messages": [{"role": "system", "content": "word " * 20_000}]}, x_request_id="too-long")
    world.ask(conversation(8), x_request_id="observed", x_context_proxy_mode="observe")
    world.logged("request_done", 11)
    api = described(world)
    check(api, "/decisions", at(world, "/decisions"))
    for name in ("turn-8", "unreadable", "too-long", "observed"):
        answer = at(world, f"/decisions/{name}")
        assert answer.status_code == 200
        check(api, "/decisions/{request_id}", answer)
    for path, bad_path in (("/decisions", "/decisions?limit=0"), ("/decisions/{request_id}", "/decisions/unknown")):
        refused = at(world, bad_path)
        assert refused.status_code in (400, 404)
        check(api, path, refused)


def test_decisions_of_a_second_send_and_of_a_request_under_way_are_as_described(build: Any) -> None:
    seen: list[httpx.Response] = []

    def look(_: Sent) -> None:
        seen.append(at(world, "/decisions"))

    world: World = build(6_000, look, defaults={"context_window": 128_000})
    assert world.ask(conversation(12)).status_code == 200
    (line,) = world.logged("request_done")
    assert line["attempts"] == 2
    api = described(world)
    assert seen[0].json()["running"]
    for answer in (*seen, at(world, "/decisions")):
        check(api, "/decisions", answer)


def test_explanations_are_as_described(build: Any) -> None:
    world = build(8_000)
    api = described(world)
    for body in (conversation(12), one_call("x"), {**one_call("x"), "max_tokens": 100_000}):
        answer = at(world, "/explain", "POST", content=json.dumps(body).encode())
        assert answer.status_code == 200
        check(api, "/explain", answer)
    refused = at(world, "/explain", "POST", content=b"{")
    assert refused.status_code == 400
    check(api, "/explain", refused)


def test_an_artifacts_description_is_shown_with_it(build: Any) -> None:
    world = build()
    world.ask(conversation(4))
    api = described(world)
    headers = {"authorization": f"Bearer {KEY}"}
    name = next(iter(world.kept))
    check(api, "/artifacts/{name}", at(world, f"/artifacts/{name}?stat", headers=headers))
    for path in (f"/artifacts/{name}", "/artifacts/unknown", f"/artifacts/{name}?lines=0"):
        refused = at(world, path, headers=headers if "?" in path else {})
        assert refused.status_code in (400, 401)
        check(api, "/artifacts/{name}", refused)


def test_the_description_is_for_who_may_see_the_pages(build: Any) -> None:
    key = "operator-key-0123456789"
    world = build(proxies=[{"server": {"admin_key": key}}])
    through = {"x-forwarded-for": "10.0.0.7", "host": "proxy.example"}
    for path in ("/openapi.json", "/docs"):
        assert at(world, path).status_code == 401  # also on this machine: a plain front there looks no different
        assert at(world, path, headers={"authorization": f"Bearer {key}"}).status_code == 200
        assert at(world, path, headers=through).status_code == 401
        assert at(world, path, headers={**through, "authorization": f"Bearer {key}"}).status_code == 200
        assert at(world, path, headers={"origin": "http://["}).status_code == 403


def test_the_page_about_the_api_names_every_path_and_loads_nothing_from_elsewhere(build: Any) -> None:
    world = build()
    page = at(world, "/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path, method in PATHS.items():
        assert f"<code>{method.upper()} {path}</code>" in page.text
    assert "<script" not in page.text
    assert "://" not in page.text
    anchors = set(re.findall(r'href="([^"]+)"', page.text))
    ids = set(re.findall(r'id="([^"]+)"', page.text))
    assert {anchor.removeprefix("#") for anchor in anchors if anchor.startswith("#")} <= ids
    for address in anchors:
        if not address.startswith("#"):
            assert at(world, f"/{address}").status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/decisions", "/", "/docs", "/openapi.json"])
def test_head_is_answered_as_get_is_without_a_body(build: Any, path: str) -> None:
    world = build()
    head, get = at(world, path, "HEAD"), at(world, path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize(("path", "broken"), [("/v1/chat/completions", "serve"), ("/v1/files", "pass_through")])
@pytest.mark.breaks_the_proxy
def test_a_defect_is_a_500_with_its_id_in_the_log_whether_fitted_or_passed_through(
    build: Any, monkeypatch: pytest.MonkeyPatch, path: str, broken: str
) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("defect")

    world = build()
    monkeypatch.setattr(Relay, broken, fail)
    answer = at(world, path, "POST", json=one_call("x"), headers={"x-request-id": "one"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "proxy_error")
    (line,) = world.logged("request_failed")
    assert line["request_id"] == "one"
    assert "ZeroDivisionError: defect" in line["exception"]
