from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.phrases import IN_ENGLISH_BY_AN_ERROR, SECTIONS

import proxy
from proxy.core.content_types import ContentKind
from proxy.core.conversation import FetchError
from proxy.core.notices import KINDS, WHY_NOT_FETCHED


@pytest.mark.parametrize("section", sorted(SECTIONS.keys() - IN_ENGLISH_BY_AN_ERROR))
def test_a_phrase_has_the_same_places_in_both_languages(section):
    for english, chinese in SECTIONS[section].values():
        assert sorted(re.findall(r"\{(\w*)", english)) == sorted(re.findall(r"\{(\w*)", chinese))


@pytest.mark.parametrize(("reasons", "phrases"), [(FetchError, WHY_NOT_FETCHED), (ContentKind, KINDS)])
def test_every_reason_and_every_kind_has_its_words_and_there_are_no_others(reasons, phrases):
    assert set(phrases) == {reason.value for reason in reasons}


READ_OR_SENT_TO_A_CLIENT = (
    "core/conversation/exchange.py",  # how the answers of tools begin
    "core/overflow/",  # how providers refuse; how the proxy does
    "core/text/excerpt.py",  # how lines tell of failures
)


def test_chinese_words_for_a_model_are_in_the_catalogue_only():
    package = Path(proxy.__file__).parent
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if says_chinese(path.read_text())}
    assert {path for path in found if not path.startswith(READ_OR_SENT_TO_A_CLIENT)} == {"core/notices/catalogue.py"}


def says_chinese(source: str) -> bool:
    """Whether a module has Chinese in a text that is no docstring."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings)
    return any(isinstance(text, str) and re.search(r"[\u4e00-\u9fff]", text) for text in texts)
