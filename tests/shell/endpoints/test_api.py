"""The description of the API is one that OpenAPI's tools read, and leaves nothing out."""

import json
import re
from typing import Any

from fastapi.routing import APIRoute, iter_route_contexts

from proxy.shell.endpoints import create_api

API = create_api()
DESCRIBED: dict[str, Any] = API.openapi()
NAME = re.compile(r"[a-zA-Z0-9._-]+")


def operations():
    for path, methods in DESCRIBED["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from references(one)


def test_every_endpoint_is_described_but_head_the_second_spelling_for_probes_and_what_mcp_refuses():
    described = {(path, method.upper()) for path, method, _ in operations()}
    routes = [route for route in iter_route_contexts(API.routes) if isinstance(route.original_route, APIRoute)]
    served = {(route.path_format, method) for route in routes for method in route.methods}
    hidden = {(path, method) for path, method in served - described if method != "HEAD" and path != "/mcp"}
    assert hidden == {(f"{path}/", "GET") for path in ("/healthz", "/readyz", "/metrics")}
    assert {path.split("/")[1] for path, _ in described - served} == {"v1", "api"}, "the agents' API is no endpoint"


def test_every_segment_in_braces_is_a_parameter_and_the_other_way_round():
    """`openapi-spec-validator` checks more, but brings seven packages; what it found was this and the next three."""
    for path, method, operation in operations():
        declared = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"]
        assert declared == re.findall(r"{(\w+)}", path), (path, method)
        assert all(one["required"] for one in operation.get("parameters", ()) if one["in"] == "path")


def test_names_of_components_are_those_that_openapi_allows_and_each_reference_leads_to_one():
    """https://spec.openapis.org/oas/v3.1.0#components-object"""
    components = DESCRIBED["components"]
    assert all(NAME.fullmatch(name) for kind in components.values() for name in kind)
    for reference in references(DESCRIBED):
        _, _, kind, name = reference.split("/")
        assert name in components[kind]
    schemes = {name for _, _, one in operations() for allowed in one.get("security", ()) for name in allowed}
    assert schemes == set(components["securitySchemes"])


def test_no_parameter_can_be_null_as_a_header_or_a_query_has_only_text():
    for path, method, operation in operations():
        assert '"null"' not in json.dumps(operation.get("parameters", ())), (path, method)


def test_no_two_operations_have_one_name():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
