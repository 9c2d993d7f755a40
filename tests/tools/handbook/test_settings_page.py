"""The page of settings names each of them with what it may be."""

import pytest

from proxy.config import Settings
from tools.handbook import reference, settings_page


def fields(section):
    for name, field in section.model_fields.items():
        inner = reference.section_in(field.annotation)
        if inner is None:
            yield name
        else:
            yield from fields(inner)


def test_every_setting_has_a_row():
    page = settings_page.render()
    assert [name for name in fields(Settings) if f"\n| `{name}` | " not in page] == []


def test_no_row_is_broken_by_a_bar_inside_of_it():
    rows = [line for line in settings_page.render().splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {5}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "boolean"}, "`true`, `false`"),
        ({"type": "integer", "minimum": 1, "maximum": 64}, "a whole number from 1 to 64"),
        ({"type": "integer", "minimum": 1024}, "a whole number, at least 1,024"),
        ({"type": "number", "exclusiveMinimum": 0}, "a number over 0"),
        ({"type": "integer"}, "a whole number"),
        ({"type": "string"}, "text"),
        ({"enum": ["head", "tail"], "type": "string"}, "`head`, `tail`"),
        ({"type": "array", "items": {"type": "string"}}, "a list of text"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "text, or empty"),
        ({"anyOf": [{"$ref": "#/$defs/Side"}, {"type": "string"}]}, "`left` or text"),
    ],
)
def test_what_a_setting_may_be_is_said_in_words(schema, words):
    assert settings_page._allowed(schema, {"$defs": {"Side": {"enum": ["left"]}}}) == words
