"""What the operator wrote in YAML and environment, as nested values; and what is wrong with it, as sentences.

Rule: a mistake becomes one line that names the key and what is allowed; all of them are collected, and none shows an
API key, a password or a line of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Nested: TypeAlias = dict[str, Any]
"""Sections and keys, as in the YAML."""

_MUST: Final[Mapping[str, str]] = {
    "missing": "must be set",
    "model_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "mapping_type": "must hold keys and values",
    "tuple_type": "must be a list",
    "frozen_set_type": "must be a list",
    "string_type": "must be a text",
    "path_type": "must be a path",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
}
"""pydantic's kinds of mistakes whose own words speak of Python. https://docs.pydantic.dev/latest/errors/validation_errors/"""

_QUOTED: Final = re.compile(r"(?<= )'[^']{2,}'|\"[^\"]*\"")
"""What PyYAML quotes from the file; a single character is no secret."""
_SHOWN_CHARS: Final = 80
"""More of a wrong value tells nobody anything."""


def read_yaml(file: Path, mistakes: list[str]) -> Nested:
    """The keys and values of a file; sections that are left empty are left out."""
    import yaml  # noqa: PLC0415 - 35 ms of the start, for those who have a file

    try:
        text = file.read_text(encoding="utf-8")
        found = yaml.safe_load(text)
        mistakes += [f"{file}, line {line}: `{key}` stands there a second time" for key, line in _repeated(text)]
    except OSError as error:
        mistakes.append(f"{file}: cannot be read: {error.strerror}")
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        mistakes.append(f"{file}{place}: is not YAML: {_QUOTED.sub('…', error.problem or 'cannot be read')}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a date such as 2024-13-45
        mistakes.append(f"{file}: is not YAML: {type(error).__name__}")
    else:
        if isinstance(found, dict):
            return {str(key): section for key, section in found.items() if section is not None}
        if found is not None:
            mistakes.append(f"{file}: must hold keys and values, such as `server: {{port: 8787}}`")
    return {}


def _repeated(text: str) -> Iterator[tuple[str, int]]:
    """Keys that stand in one section twice, of which PyYAML takes the last without a word, with their lines."""
    import yaml  # noqa: PLC0415 - as above

    waiting, seen = [yaml.compose(text, yaml.SafeLoader)], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
            known = set[str]()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in known and key.tag != "tag:yaml.org,2002:merge":
                    yield key.value[:_SHOWN_CHARS], key.start_mark.line + 1
                known.add(key.value)


def read_environment(
    variables: Mapping[str, str], prefix: str, settings: type[BaseModel], mistakes: list[str]
) -> Nested:
    """The variables that start with `prefix`, `__` between the levels of their names; empty ones count as not set.

    Upper and lower case are alike save in the names of tools. Lists and objects are written as JSON.
    """
    found: Nested = {}
    for name in sorted(variables):
        if not name.upper().startswith(prefix):
            continue
        path, takes_json, unknown = _key(name[len(prefix) :].split("__"), settings)
        if unknown:
            mistakes.append(f"{name}: unknown setting; {unknown}")
        elif text := variables[name]:
            try:
                value: Any = json.loads(text) if takes_json and text.lstrip().startswith(("[", "{")) else text
            except json.JSONDecodeError as error:
                mistakes.append(f"{name}: is not JSON: {error.msg[0].lower()}{error.msg[1:]} at character {error.pos}")
                continue
            for step in reversed(path):
                value = {step: value}
            found = merge(found, value)
    return found


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> Nested:
    """Both, key by key; where both say something, `high` has the say."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = merge(below, value)
        elif not (isinstance(value, dict) and isinstance(below, str | int | float)):
            merged[key] = value  # but a section that is written as one value stays, so that the mistake is seen
    return merged


def sentence(mistake: ErrorDetails, settings: type[BaseModel]) -> str:
    """One mistake that pydantic found, as `key: what is allowed, found what`."""
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in mistake["loc"]).lstrip(".")
    if mistake["type"] == "extra_forbidden":
        known = sorted(_section_at(mistake["loc"][:-1], settings).model_fields)
        return f"{where}: unknown setting; known here are {', '.join(known)}"
    said = mistake["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    allowed = _MUST.get(mistake["type"], said[0].lower() + said[1:])
    if "too_short" in mistake["type"]:
        least = mistake["ctx"]["min_length"]
        allowed = "must not be empty" if least == 1 else f"must have at least {least} characters"
    if mistake["type"].startswith(("greater_than", "less_than")) and _may_be_left_out(mistake["loc"], settings):
        allowed += ", or left out"
    found = mistake["input"]
    secret = "key" in where or (isinstance(found, str) and re.search("[@?#]", found))
    shown = isinstance(found, str | int | float) and not secret
    return f"{where}: {allowed}" + (f", found {repr(found)[:_SHOWN_CHARS]}" if shown else "")


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The settings class in an annotation such as `tuple[ModelSettings, ...]`, if any."""
    return next(filter(_is_section, _kinds(annotation)), None)


def _key(steps: list[str], settings: type[BaseModel]) -> tuple[list[str], bool, str]:
    """A variable's name as a path, whether JSON may stand there, and what is allowed where the name is not known."""
    path: list[str] = []
    annotation: Any = settings
    for step in steps:
        kinds = list(_kinds(annotation))
        section = section_in(annotation)
        if section is None:
            return path, False, f"{path[-1].upper()} has no settings below it"
        if Mapping in kinds:
            path.append(step)
            annotation = section
        elif step.lower() in section.model_fields and tuple not in kinds:
            path.append(step.lower())
            annotation = section.model_fields[step.lower()].annotation
        else:
            return path, False, f"known here are {', '.join(sorted(section.model_fields)).upper()}"
    return path, any(kind in (Mapping, tuple, frozenset) or _is_section(kind) for kind in _kinds(annotation)), ""


def _may_be_left_out(path: tuple[int | str, ...], settings: type[BaseModel]) -> bool:
    field = _section_at(path[:-1], settings).model_fields.get(str(path[-1]))
    return field is not None and not field.is_required() and field.default is None


def _section_at(path: tuple[int | str, ...], settings: type[BaseModel]) -> type[BaseModel]:
    section, key_follows = settings, False
    for step in path:
        if not key_follows:
            annotation = section.model_fields[str(step)].annotation
            section = section_in(annotation) or section
            key_follows = annotation is not section
        else:
            key_follows = False
    return section


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _kinds(annotation: Any) -> Iterator[Any]:
    """An annotation and everything that stands inside it: `Mapping[str, Tool]` gives Mapping, str, Tool."""
    yield get_origin(annotation) or annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)
