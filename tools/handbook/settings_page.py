"""`docs/settings.md`: every setting with its allowed values, generated from the settings.

Rule: this module describes no setting; types and limits come from the schema of the models, texts from the docstrings
below the fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.config.settings import ENV_ALIASES, ENV_PREFIX, Settings
from tools.handbook.reference import settings_docstrings

Schema = Mapping[str, Any]

HEAD: Final = f"""\
# Settings

Written by `make docs/settings.md` from the settings. [config.example.yaml](../config.example.yaml) holds the same as a
file that can be copied, and [recipes](recipes.md) has whole files for common designs.

* A flag beats a variable, a variable beats the file: `context-proxy serve --config config.yaml`.
* Each setting is also a variable: `{ENV_PREFIX}` and its name in capitals, with two underscores between the levels:
  `{ENV_PREFIX}SERVER__PORT=9000`. Lists and maps are JSON: `{ENV_PREFIX}TOOL_OUTPUT__NEVER='["Skill"]'`.
* Short names that also work: {{aliases}}.
* A mistake stops the start with one line that names the setting, or the variable as you wrote it, and what is allowed.
"""


def render() -> str:
    """The page."""
    schema = Settings.model_json_schema()
    docstrings = settings_docstrings()
    aliases = ", ".join(f"`{name}`" for name in sorted(ENV_ALIASES))
    lines = [HEAD.format(aliases=aliases)]
    fields = schema["properties"]
    plain = {name: found for name, found in fields.items() if _section(found, schema) is None}
    lines += ["## Top level", "", *_table(plain, docstrings["Settings"], schema), ""]
    for name, found in fields.items():
        if (inner := _section(found, schema)) is not None:
            lines += _described(name, found, inner, docstrings, schema)
    return "\n".join(lines).rstrip() + "\n"


def _described(
    name: str, found: Schema, inner: str, docstrings: Mapping[str, Mapping[str, str]], schema: Schema
) -> list[str]:
    """A section, and the sections inside it."""
    fields = schema["$defs"][inner]["properties"]
    several = {"array": " (a list)", "object": " (by name)"}.get(found.get("type", ""), "")
    own = {field: of for field, of in fields.items() if _section(of, schema) is None}
    purpose = docstrings.get(name.rpartition(".")[0] or "Settings", {}).get(name) or docstrings[inner][""]
    lines = [f"## {name}{several}", "", " ".join(purpose.split()), "", *_table(own, docstrings[inner], schema), ""]
    for field, of in fields.items():
        if (deeper := _section(of, schema)) is not None:
            lines += _described(f"{name}.{field}", of, deeper, docstrings, schema)
    return lines


def _table(fields: Mapping[str, Schema], docstrings: Mapping[str, str], schema: Schema) -> Iterator[str]:
    yield "| setting | may be | default | |"
    yield "|---|---|---|---|"
    for name, found in fields.items():
        default = _default(name, found, schema)
        says = " ".join(docstrings[name].split()).replace("|", "\\|")
        yield f"| `{name}` | {_allowed(found, schema)} | {default} | {says} |"


def _default(name: str, found: Schema, schema: Schema) -> str:
    if "default" in found:
        return _written(found["default"])
    is_of_machine = name in schema["properties"] and name not in schema.get("required", ())
    return _written(found["examples"][0]) if is_of_machine else "must be set"


def _section(found: Schema, schema: Schema) -> str | None:
    """The model that this field holds: itself, in a list, or by name."""
    for at in (found, found.get("items", {}), found.get("additionalProperties", {})):
        name = at.get("$ref", "").rpartition("/")[2] if isinstance(at, Mapping) else ""
        if name and "properties" in schema["$defs"][name]:
            return str(name)
    return None


def _allowed(found: Schema, schema: Schema) -> str:
    """The allowed values, in words."""
    if "anyOf" in found:
        kinds = [_allowed(kind, schema) for kind in found["anyOf"] if kind.get("type") != "null"]
        return " or ".join(kinds) + (", or empty" if len(kinds) < len(found["anyOf"]) else "")
    if "$ref" in found:
        return _allowed(schema["$defs"][found["$ref"].rpartition("/")[2]], schema)
    if "enum" in found:
        return ", ".join(f"`{value}`" for value in found["enum"])
    if found.get("type") == "array":
        return f"a list of {_allowed(found['items'], schema)}"
    if found.get("type") in ("integer", "number"):
        return _number(found)
    return {"boolean": "`true`, `false`", "object": "a map"}.get(found["type"], "text")


def _number(found: Schema) -> str:
    kind = "a whole number" if found["type"] == "integer" else "a number"
    least, most = found.get("minimum"), found.get("maximum")
    if least is not None and most is not None:
        return f"{kind} from {least:,} to {most:,}"
    if found.get("exclusiveMinimum") is not None:
        return f"{kind} over {found['exclusiveMinimum']:,}"
    return kind if least is None else f"{kind}, at least {least:,}"


def _written(default: Any) -> str:
    if default is None:
        return "empty"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"
