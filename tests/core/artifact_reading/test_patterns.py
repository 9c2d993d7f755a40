from __future__ import annotations

import pytest
from support.reading_texts import hits

from proxy.core.artifact_reading.patterns import Search
from proxy.errors import BadArtifactQuery


@pytest.mark.parametrize(
    "pattern", ["", "(", "a" * 501, "(?=a)", r"(a)\1", "a{2000}", r"(\pL{100}){9}", "\ud800", "(((a{30}){30}){30})"]
)
def test_a_pattern_that_is_empty_too_long_or_not_regular_is_refused(pattern):
    with pytest.raises(BadArtifactQuery) as refused:
        Search(pattern)
    assert refused.value.param == "grep"


def test_a_refusal_quotes_the_pattern_as_it_was_given():
    with pytest.raises(BadArtifactQuery) as refused:
        Search("caf\u00e9(")
    assert refused.value.message.endswith("backreferences: missing ): caf\u00e9(")


@pytest.mark.parametrize(("context", "most"), [(-1, 5), (51, 5), (0, 0), (0, 1_001)])
def test_more_context_or_matches_than_allowed_are_refused(context, most):
    with pytest.raises(BadArtifactQuery):
        Search("a", context, most)


def test_patterns_that_are_catastrophic_elsewhere_are_read_in_linear_time():
    text = b"a" * 200_000 + b"\n" + b"x" * 200_000
    assert hits(text, "(a|aa)+$").count
    assert hits(text, "(x+x+)+y").count == 0
    assert hits(text, "^(([a-z])+.)+[A-Z]([a-z])+$").count == 0
