"""The endpoints as `/openapi.json` describes them: `docs/api.md`, and the page that the proxy shows at `/docs`.

Rule: no proxy is started: a description needs the routes, not the services that they use. The page has no script and
loads nothing from elsewhere, so that it works under the strictest policy; its content is text, never markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from proxy.shell.endpoints import create_api

HEAD: Final = """\
# API

Written by `make docs/api.md` from what the proxy serves at `/openapi.json`; a running proxy shows the same at `/docs`.
[Endpoints](endpoints.md) says who needs no key, and what agents get.
"""
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: API</title>
<link rel="stylesheet" href="dashboard/api.css">
<main>
<h1>{title}: API</h1>
<p>{about} The same for programs: <a href="openapi.json">openapi.json</a>.</p>
{sections}
</main>
</html>
"""


def described() -> Mapping[str, Any]:
    """The content of `/openapi.json`."""
    return create_api().openapi()


def render() -> str:
    """The chapter of the handbook."""
    return "\n".join([HEAD, *api_sections(described())]) + "\n"


def render_page() -> str:
    """The page at `/docs`."""
    api = described()
    about = api["info"]
    title, sections = escape(about["title"]), "\n".join(api_sections(api))
    return _PAGE.format(title=title, about=_text(about["description"]), sections=sections)


_Schema = Mapping[str, Any]
_BOUNDS: Final = (("minimum", "from"), ("maximum", "to"), ("minLength", "from"), ("maxLength", "to"))


def api_sections(described: _Schema) -> Iterator[str]:
    """Lines of HTML: a section for each operation, then one for each response."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield from _operation(path, method, operation)
    yield "<h2>Responses</h2>"
    for name, schema in described["components"]["schemas"].items():
        yield from _response(name, schema)


def _operation(path: str, method: str, operation: _Schema) -> Iterator[str]:
    yield f'<section id="{escape(operation["operationId"])}">'
    yield f"<h2><code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])}</h2>"
    yield f"<p>{_text(operation.get('description', ''))}</p>"
    if keys := [name for allowed in operation.get("security", ()) for name in allowed]:
        yield f"<p>With the {escape(' or the '.join(keys)).replace('_', ' ')}, where one is needed.</p>"
    if parameters := operation.get("parameters"):
        rows = [
            (
                f"<code>{escape(one['name'])}</code>",
                f"{escape(one['in'])}{', required' if one.get('required') else ''}",
                _kind(one["schema"]),
                _text(one.get("description", "")),
            )
            for one in parameters
        ]
        yield from _table(("parameter", "in", "type", "what it says"), rows)
    if body := operation.get("requestBody"):
        yield f"<p>Body: {_text(body['description'])}</p>"
    yield from _table(("status", "type", "what it says"), list(_responses(operation["responses"])))
    yield "</section>"


def _responses(responses: _Schema) -> Iterator[Sequence[str]]:
    for status, response in responses.items():
        kinds = [
            f"<code>{escape(media_type)}</code> {_kind(schema) if (schema := content.get('schema')) else ''}".rstrip()
            for media_type, content in response.get("content", {}).items()
        ]
        yield escape(status), "<br>".join(kinds), _text(response["description"])


def _response(name: str, schema: _Schema) -> Iterator[str]:
    yield f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n<p>{_text(schema.get("description", ""))}</p>'
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(member)}</code>",
            _kind(kind) + ("" if member in required else ", may be left out"),
            _text(kind.get("description", "")),
        )
        for member, kind in schema.get("properties", {}).items()
    ]
    yield from _table(("member", "type", "what it says"), rows)
    yield "</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of cells that are already markup."""
    yield f"<table>\n<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"
    yield from (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    yield "</table>"


def _kind(schema: _Schema) -> str:
    """A type in a word or two; other responses are linked.

    >>> _kind({"type": "integer", "minimum": 1, "maximum": 9, "default": 5})
    'integer from 1 to 9, else 5'
    >>> _kind({"anyOf": [{"type": "array", "items": {"$ref": "#/components/schemas/Block"}}, {"type": "null"}]})
    'list of <a href="#Block">Block</a> or null'
    """
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return " or ".join(f"<code>{escape(str(one))}</code>" for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if isinstance(more := schema.get("additionalProperties"), Mapping):
        return f"by name, {_kind(more)}"
    kind = escape(schema.get("format") or schema.get("type", "anything"))
    bounds = "".join(f" {word} {schema[bound]}" for bound, word in _BOUNDS if bound in schema)
    unit = " characters" if "maxLength" in schema else ""
    usual = f", else {escape(str(schema['default']))}" if schema.get("default") not in (None, "", {}) else ""
    return f"{kind}{bounds}{unit}{usual}"


def _text(markdown: str) -> str:
    """Escaped, with `code` marked up as code.

    >>> _text("a `b<c` d")
    'a <code>b&lt;c</code> d'
    """
    pieces = escape(" ".join(markdown.split())).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
