"""`docs/api.md`: the endpoints as `/openapi.json` describes them.

Rule: this module describes no endpoint; each is described where it is declared. No proxy is started: a description
needs the routes, not the parts that they use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.shell.endpoints.api import create_api

Schema = Mapping[str, Any]

HEAD: Final = """\
# API

Written by `make docs/api.md` from what the proxy serves at `/openapi.json`; a running proxy shows the same at `/docs`.
[Endpoints](endpoints.md) says who needs no key, and what agents get.
"""


def described() -> Schema:
    """The content of `/openapi.json`."""
    return create_api().openapi()


def render() -> str:
    """The page."""
    schema = described()
    lines = [HEAD]
    answers: list[str] = []
    for path, methods in schema["paths"].items():
        for method, endpoint in methods.items():
            lines += _endpoint(f"{method.upper()} {path}", endpoint, answers)
    lines += ["## Responses", ""]
    for name in _with_parts(answers, schema):
        lines += _answer(name, schema["components"]["schemas"][name])
    return "\n".join(lines).rstrip() + "\n"


def _endpoint(title: str, endpoint: Schema, answers: list[str]) -> Iterator[str]:
    yield from (f"## `{title}`", "", f"{endpoint['summary']}. {_text(endpoint)}".strip(), "")
    if keys := [name for need in endpoint.get("security", []) for name in need]:
        yield from (f"Asks for: {' or '.join(keys)}.", "")
    if parameters := endpoint.get("parameters"):
        yield from ("| parameter | in | |", "|---|---|---|")
        yield from (f"| `{one['name']}` | {one['in']} | {_text(one)} |" for one in parameters)
        yield ""
    for status, answer in endpoint["responses"].items():
        for kind, content in answer.get("content", {}).items():
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if name and name not in answers:
                answers.append(name)
            link = f"[`{name}`](#{name.lower()})" if name else f"`{kind}`"
            yield f"* {status}: {link}"
    yield ""


def _answer(name: str, found: Schema) -> Iterator[str]:
    yield from (f"### {name}", "")
    if says := _text(found):
        yield from (says, "")
    yield from ("| member | | |", "|---|---|---|")
    yield from (f"| `{member}` | {_kind(of)} | {_text(of)} |" for member, of in found["properties"].items())
    yield ""


def _with_parts(names: list[str], schema: Schema) -> list[str]:
    """These responses, each followed by its parts, each once."""
    found: list[str] = []
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting[:0] = _named(schema["components"]["schemas"][name])
    return found


def _named(part: Any) -> list[str]:
    """Every model that a schema refers to, in its order."""
    if isinstance(part, Mapping):
        own = [part["$ref"].rpartition("/")[2]] if "$ref" in part else []
        return own + [name for value in part.values() for name in _named(value)]
    return [name for value in part for name in _named(value)] if isinstance(part, list) else []


def _kind(found: Schema) -> str:
    if "anyOf" in found:
        return " or ".join("empty" if kind.get("type") == "null" else _kind(kind) for kind in found["anyOf"])
    if name := found.get("$ref", "").rpartition("/")[2]:
        return f"[`{name}`](#{name.lower()})"
    if "enum" in found or "const" in found:
        return ", ".join(f"`{value}`" for value in found.get("enum", [found.get("const")]))
    if found.get("type") == "array":
        return f"a list of {_kind(found['items'])}"
    if found.get("type") == "object":
        values = found.get("additionalProperties")
        return f"by name, {_kind(values)}" if isinstance(values, Mapping) else "a map"
    return {"integer": "whole number", "number": "number", "boolean": "`true`, `false`"}.get(
        found.get("type", ""), "text"
    )


def _text(found: Schema) -> str:
    return " ".join(found.get("description", "").split()).replace("|", "\\|")
