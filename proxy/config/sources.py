"""The sources that pydantic-settings reads, with their mistakes as sentences.

Rule: a mistake becomes one line that names the key, or the variable, and the allowed values. All mistakes are
collected, and none shows an API key, a password or a line of the file. docs/decisions/0005 says what the library does
and what is added here.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource

if TYPE_CHECKING:
    import yaml

Nested: TypeAlias = dict[str, Any]
"""Sections and keys, as in the YAML."""
Place: TypeAlias = tuple[str, ...]
"""The sections and the key that lead to a setting."""
_LEVELS: Final = "__"
"""Separates the levels in a variable's name."""

_MUST: Final[Mapping[str, str]] = {
    "missing": "must be set",
    "model_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "mapping_type": "must hold keys and values",
    "tuple_type": "must be a list",
    "frozen_set_type": "must be a list",
    "string_type": "must be text",
    "path_type": "must be a path",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
}
"""pydantic's kinds of mistakes whose texts name Python. https://docs.pydantic.dev/latest/errors/validation_errors/"""

_UNITS: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "kb": 2**10, "mb": 2**20, "gb": 2**30}
"""Powers of ten for tokens; powers of two for bytes, as in the defaults."""
_WITH_UNIT: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*(k|m|g)i?(b?)\s*", re.IGNORECASE)
_TAB: Final = r"'\t'"
"""PyYAML's spelling in its messages."""
_QUOTED: Final = re.compile(r"(?<= )'(?!<[a-z ]+>')[^']{2,}'|\"[^\"]*\"")
"""Quotations from the file in PyYAML's errors; a single character is not a secret, nor is a token such as
`<stream end>`."""
_SHOWN_CHARS: Final = 80
"""Longer values are cut in messages."""


def read_yaml(file: Path, mistakes: list[str]) -> Nested:
    """The keys and values of a file, without empty sections."""
    import yaml  # noqa: PLC0415 - 35 ms of the start, for those who have a file

    try:
        text = file.read_text(encoding="utf-8")
        found = yaml.load(text, _loader(file, mistakes))  # noqa: S506 - a safe one
    except OSError as error:
        mistakes.append(f"{file}: cannot be read: {error.strerror}")
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = error.problem or "cannot be read"
        message = (
            "has a tab where YAML takes spaces" if _TAB in problem else f"is not YAML: {_QUOTED.sub('…', problem)}"
        )
        mistakes.append(f"{file}{place}: {message}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a date such as 2024-13-45
        is_text = not isinstance(error, UnicodeError)
        mistakes.append(f"{file}: is not " + (f"YAML: {type(error).__name__}" if is_text else "UTF-8"))
    else:
        if isinstance(found, dict):
            return {str(key): section for key, section in found.items() if section is not None}
        if found is not None:
            mistakes.append(f"{file}: must hold keys and values, such as `server: {{port: 8787}}`")
    return {}


def _loader(file: Path, mistakes: list[str]) -> type[yaml.SafeLoader]:
    """A safe loader that reports keys that occur twice in one section, of which PyYAML silently takes the last."""
    import yaml  # noqa: PLC0415 - as above

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            known = set[str]()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in known and key.tag != "tag:yaml.org,2002:merge":
                    line = key.start_mark.line + 1
                    mistakes.append(f"{file}, line {line}: `{_one_line(key.value)}` appears twice")
                known.add(key.value)
            return super().construct_mapping(node, deep)

    return Loader


def names_of_variables(
    variables: Mapping[str, str], prefix: str, settings: type[BaseModel], mistakes: list[str]
) -> dict[Place, str]:
    """The variables that start with `prefix`, by setting, with `__` between the levels of a name; empty ones are
    ignored.

    Case is ignored except in the names of tools. Lists and objects are written as JSON.
    """
    found: dict[Place, str] = {}
    for name in sorted(variables):
        if name[: len(prefix)].upper() != prefix:
            continue
        place, takes_json, unknown = _place_of(name[len(prefix) :].split(_LEVELS), settings)
        if unknown:
            mistakes.append(f"{_one_line(name)}: unknown setting; {unknown}")
        elif text := variables[name]:
            if takes_json and (trouble := _json_trouble(text)):
                mistakes.append(f"{_one_line(name)}: is not JSON: {trouble}")
            else:
                found[place] = name
    return found


class Variables(EnvSettingsSource):
    """Environment variables. The library reads them; each is first given the name of its setting."""

    def __init__(self, settings: type[BaseSettings], names: Mapping[Place, str]) -> None:
        """`names`: the variables by setting; none of them is empty or holds broken JSON."""
        super().__init__(settings, case_sensitive=True, env_prefix="", env_nested_delimiter=_LEVELS)
        self.env_vars = {_LEVELS.join(place): os.environ[names[place]] for place in sorted(names)}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002 - the library's
        """Text that is not JSON stays as it is: the settings say what is expected."""
        return json.loads(value) if _looks_like_json(value) else value


def variable_with(mistake: ErrorDetails, read: Iterable[tuple[Nested, Mapping[Place, str]]]) -> str | None:
    """The variable that holds a mistake, of those read, the strongest first, each as its values and its names; None if
    none does."""
    place = mistake["loc"]
    starts = [cast("Place", place[:length]) for length in range(len(place), 0, -1)]
    holding = (names for values, names in read if stands_in(values, mistake))
    return next((names[start] for names in holding for start in starts if start in names), None)


def stands_in(nested: Any, mistake: ErrorDetails) -> bool:
    """Whether these values hold the mistake, or the section in which something is missing."""
    for step in mistake["loc"][: -1 if mistake["type"] == "missing" else None]:
        try:
            nested = nested[step]
        except (LookupError, TypeError):
            return False
    return True


def sentence(mistake: ErrorDetails, settings: type[BaseModel], variable: str | None = None) -> str:
    """One mistake that pydantic found, as `key: what is allowed, found what (VARIABLE)`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_one_line(step)}" for step in mistake["loc"])
    where, behind = "".join(steps).lstrip("."), f" ({_one_line(variable)})" if variable else ""
    if mistake["type"] == "extra_forbidden":
        known = sorted(_section_at(mistake["loc"][:-1], settings).model_fields)
        close = meant(str(mistake["loc"][-1]), known)
        return f"{where}: unknown setting; valid here are {', '.join(known)}{close}{behind}"
    message = mistake["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    allowed = _MUST.get(mistake["type"], message[0].lower() + message[1:])
    if "too_short" in mistake["type"]:
        least = mistake["ctx"]["min_length"]
        allowed = "must not be empty" if least == 1 else f"must have at least {least} characters"
    if mistake["type"].startswith(("greater_than", "less_than")) and _may_be_left_out(mistake["loc"], settings):
        allowed += ", or left out"
    found = mistake["input"]
    if mistake["type"] == "tuple_type" and isinstance(found, dict) and "match" in _fields_at(mistake["loc"], settings):
        allowed += ", such as `- {match: NAME, …}` instead of `NAME: {…}`"
    if mistake["type"] == "int_parsing" and (number := _WITH_UNIT.fullmatch(str(found))):
        allowed += f" without a unit, such as {round(float(number[1]) * _UNITS[(number[2] + number[3]).lower()])}"
    secret = (
        "key" in where
        or "secret" in where
        or where.startswith("state.url")
        or (isinstance(found, str) and re.search("[@?#]", found))
    )
    is_missing_extra = found is True and mistake["type"] == "value_error"
    shown = isinstance(found, str | int | float) and not secret and not is_missing_extra
    return f"{where}: {allowed}" + (f", found {repr(found)[:_SHOWN_CHARS]}" if shown else "") + behind


def meant(written: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing if no known name is close.

    >>> meant("upsteam", ["upstream", "server"]), meant("x", ["upstream", "server"])
    ('; did you mean upstream?', '')
    """
    close = difflib.get_close_matches(written, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The settings class in an annotation such as `tuple[ModelSettings, ...]`, if any."""
    return next(filter(_is_section, _kinds(annotation)), None)


def _place_of(steps: list[str], settings: type[BaseModel]) -> tuple[Place, bool, str]:
    """A variable's name as a place, whether the place takes JSON, and the allowed names if this one is unknown."""
    place: Place = ()
    annotation: Any = settings
    for step in steps:
        kinds = list(_kinds(annotation))
        section = section_in(annotation)
        if section is None:
            return place, False, f"{_one_line(place[-1].upper())} has no settings below it"
        if dict in kinds:
            place += (step,)
            annotation = section
        elif step.lower() in section.model_fields and tuple not in kinds:
            place += (step.lower(),)
            annotation = section.model_fields[step.lower()].annotation
        else:
            known = [name.upper() for name in sorted(section.model_fields)]
            return place, False, f"valid here are {', '.join(known)}{meant(step.upper(), known)}"
    return place, any(kind in (dict, tuple, frozenset) or _is_section(kind) for kind in _kinds(annotation)), ""


def _looks_like_json(text: str) -> bool:
    return text.lstrip().startswith(("[", "{"))


def _json_trouble(text: str) -> str:
    """Why a text that looks like JSON is not; empty for any other text."""
    try:
        if _looks_like_json(text):
            json.loads(text)
    except json.JSONDecodeError as error:
        return f"{error.msg[0].lower()}{error.msg[1:]} at character {error.pos}"
    except RecursionError:
        return "nested too deeply"
    return ""


def _one_line(name: str) -> str:
    """A user's name for something, fit for one line: bounded, and without characters that end or overwrite the line."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in name[:_SHOWN_CHARS])


def _may_be_left_out(path: tuple[int | str, ...], settings: type[BaseModel]) -> bool:
    field = _section_at(path[:-1], settings).model_fields.get(str(path[-1]))
    return field is not None and not field.is_required() and field.default is None


def _fields_at(path: tuple[int | str, ...], settings: type[BaseModel]) -> Iterable[str]:
    """The fields of an entry of the list at a path."""
    entry = section_in(_section_at(path[:-1], settings).model_fields[str(path[-1])].annotation)
    return entry.model_fields if entry is not None else ()


def _section_at(path: tuple[int | str, ...], settings: type[BaseModel]) -> type[BaseModel]:
    """The innermost section at a path; indices and names of tools lead to no other."""
    section = settings
    for step in path:
        field = section.model_fields.get(str(step))
        section = (field and section_in(field.annotation)) or section
    return section


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _kinds(annotation: Any) -> Iterator[Any]:
    """An annotation and everything inside it: `Mapping[str, Tool]` gives Mapping, str, Tool."""
    yield get_origin(annotation) or annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)
