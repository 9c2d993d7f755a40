"""Every link target of README, docs/ and the site exists."""

import re
from pathlib import Path

import pytest
import yaml

from tools.handbook import site

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *DOCS.rglob("*.md")])
SITE = yaml.safe_load((DOCS / "mkdocs.yml").read_text())


def links(page):
    """Path and anchor of every link inside the repository."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for path, anchor in re.findall(r"\]\(((?!\w+:)[^)#\s]*)(#[^)\s]*)?\)", text):
        yield path, anchor.removeprefix("#")


def anchors(page):
    """Anchors of its headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page):
    broken = []
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def names(nav):
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from names(below)


def test_the_site_has_every_page_once_in_its_menu():
    listed = list(names(SITE["nav"]))
    assert len(listed) == len(set(listed))
    assert set(listed) == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | set(site.PAGES.values())


def test_no_page_says_another_number_of_apis():
    """Four are fitted; a sentence about all of them says "every API"."""
    for page in (page for page in PAGES if page.parent.name != "decisions"):
        wrong = re.findall(r"\b(?:both|two|three|five) APIs\b", page.read_text())
        assert wrong == [], page


def test_the_site_is_strict_and_loads_no_font():
    assert SITE["strict"] is True
    assert SITE["theme"]["font"] is False
    assert set(SITE["validation"].values()) == {"warn"}
    assert not {"extra_css", "extra_javascript"} & set(SITE)


@pytest.mark.parametrize(
    ("link", "written", "at", "turned"),
    [
        ("docs/tls.md#b", "README.md", "index.md", "tls.md#b"),
        ("docs/decisions/index.md", "README.md", "index.md", "decisions/index.md"),
        ("../docs/reliability.md", ".github/SECURITY.md", "security.md", "reliability.md"),
        ("../.github/SECURITY.md", "docs/operations.md", "operations.md", "security.md"),
        ("../deploy/nginx.conf", "docs/tls.md", "tls.md", "deploy/nginx.conf"),
        ("../../README.md", "docs/decisions/index.md", "decisions/index.md", "../index.md"),
        ("https://example.com/docs/a.md", "README.md", "index.md", "https://example.com/docs/a.md"),
    ],
)
def test_links_are_turned_to_where_the_site_has_the_same(link, written, at, turned):
    assert site.linked(f"[x]({link})", written, at) == f"[x]({turned})"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_a_page_names_exists(page):
    named = re.findall(r"`(?:proxy/)?((?:core|shell|wire|config)/[\w/.]*)`", page.read_text())
    modules = [ROOT / "proxy" / path for path in named]  # with or without `.py`
    assert [path for path in modules if not path.exists() and not path.with_suffix(".py").exists()] == []


def test_to_change_one_thing_few_modules_are_opened():
    text = (DOCS / "architecture.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text.partition("## Where to change what")[2], re.MULTILINE))
    opened = {name: len(re.findall(r"`[\w/.]+`", where)) for name, where in rows.items()}
    assert opened["how a tool result is cut"] <= 5
    assert opened["how a provider's refusal is recognised"] <= 2
    assert opened["a setting"] <= 2
    assert opened["the words of a notice"] == opened["the API that agents speak"] == 1


def test_every_decision_is_in_the_index():
    index = (DOCS / "decisions" / "index.md").read_text()
    pages = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert re.findall(r"\]\((0[^)]+)\)", index) == pages
