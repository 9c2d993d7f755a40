"""The page about the API names every endpoint and every member of its answers."""

from __future__ import annotations

import re

from handbook import api_page


def test_every_endpoint_has_a_section_with_its_parameters() -> None:
    page = api_page.render()
    for path, methods in api_page.described()["paths"].items():
        for method, endpoint in methods.items():
            section = page.partition(f"## `{method.upper()} {path}`")[2].partition("\n## ")[0]
            assert endpoint["summary"] in section
            for parameter in endpoint.get("parameters", []):
                assert f"| `{parameter['name']}` | {parameter['in']} |" in section


def test_every_model_of_an_answer_is_told_once_with_its_members() -> None:
    page = api_page.render()
    for name, model in api_page.described()["components"]["schemas"].items():
        assert page.count(f"\n### {name}\n") == 1
        section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert [member for member in model["properties"] if f"| `{member}` | " not in section] == []


def test_a_part_follows_what_it_is_a_part_of() -> None:
    headings = re.findall(r"^### (\w+)$", api_page.render(), re.MULTILINE)
    assert headings.index("Decisions") < headings.index("Totals")
    assert headings.index("Explanation") < headings.index("Profile")


def test_an_endpoint_of_the_operator_says_which_key_it_asks_for() -> None:
    page = api_page.render()
    assert "Asks for: operator key." in page.partition("## `POST /explain`")[2].partition("\n## ")[0]
    assert "Asks for" not in page.partition("## `GET /healthz`")[2].partition("\n## ")[0]
