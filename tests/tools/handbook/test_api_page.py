"""The page about the API names every endpoint and every member of its responses."""

from html import escape

from tools.handbook import api_page


def section(page, name):
    """The section of an operation or a response."""
    return page.partition(f'<section id="{escape(name)}">')[2].partition("</section>")[0]


def test_every_endpoint_has_a_section_with_its_parameters():
    page = api_page.render()
    for path, methods in api_page.described()["paths"].items():
        for method, endpoint in methods.items():
            found = section(page, endpoint["operationId"])
            assert f"<code>{method.upper()} {escape(path)}</code>" in found
            assert escape(endpoint["summary"]) in found
            for parameter in endpoint.get("parameters", []):
                assert f"<td><code>{parameter['name']}</code></td><td>{parameter['in']}" in found


def test_every_response_model_is_listed_once_with_its_members():
    page = api_page.render()
    for name, model in api_page.described()["components"]["schemas"].items():
        assert page.count(f'<section id="{name}">') == 1
        found = section(page, name)
        assert [member for member in model["properties"] if f"<td><code>{member}</code></td>" not in found] == []


def test_an_operator_endpoint_names_the_key_that_it_needs():
    page, paths = api_page.render(), api_page.described()["paths"]
    assert "With the operator key" in section(page, paths["/explain"]["post"]["operationId"])
    assert "With the" not in section(page, paths["/healthz"]["get"]["operationId"])


def test_the_page_is_one_block_of_html_that_markdown_leaves_alone():
    """A blank line would end it."""
    _, _, html = api_page.render().partition("<section")
    assert "\n\n" not in html
