"""The judge on labelled answers: the variants kept here, and others where there are some.

`OVERFLOW_CORPUS` names a file of them, a JSON object a line as in `unseen_variants.jsonl`; else one is looked for in
the folders beside this repository.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.overflow_score import Score, load, score, verdict_of

HERE = Path(__file__).parent
VARIANTS = HERE / "unseen_variants.jsonl"
BESIDE = next(HERE.parents[2].glob("*/overflow/corpus_dev.jsonl"), None)
OTHERS = Path(os.environ["OVERFLOW_CORPUS"]) if "OVERFLOW_CORPUS" in os.environ else BESIDE
NO_OTHERS = pytest.mark.skipif(OTHERS is None, reason="there is no other corpus, and OVERFLOW_CORPUS names none")
CORPORA = [VARIANTS, pytest.param(OTHERS, marks=NO_OTHERS)]


@pytest.mark.parametrize("corpus", CORPORA, ids=["variants", "others"])
def test_refusals_are_recognised_without_a_false_trigger_and_their_limits_are_read_and_learnt(corpus: Path):
    result: Score = score(load(corpus))
    assert result.recall >= 0.985, result.confusions
    assert result.counts["false trigger"] == 0, result.confusions
    assert result.limits_read >= 0.95, result.confusions
    assert result.counts["wrong limit"] == 0, result.confusions
    assert result.counts["exact"] > 0
    assert result.learnability == 1, result.confusions


def other_numbers(text: str) -> str:
    return re.sub(r"\d+", lambda number: str(int(number[0]) + 11), text)


@pytest.mark.parametrize("corpus", CORPORA, ids=["variants", "others"])
def test_a_refusal_is_one_whatever_of_its_words_the_request_holds(corpus: Path):
    """Agents read logs and tests: the request holds the same words about other numbers, or the very refusal."""
    for row in load(corpus):
        alone = verdict_of(row)
        words = alone.upstream_message
        for held in (other_numbers(words), words) if alone.is_overflow else ():
            request = json.dumps({"messages": [{"role": "user", "content": f"Why? {held}"}]}).encode()
            verdict = verdict_of(row, request=request)
            assert replace(verdict, may_be_echo=False) == alone, row["id"]
            is_held = held == words and alone.limit is not None and str(alone.limit) in words
            assert verdict.may_be_echo >= is_held, row["id"]
            assert held == words or not verdict.may_be_echo, row["id"]


LOOK_ALIKES = [row for row in load(VARIANTS) if row["label"] == "not_overflow"]


@pytest.mark.parametrize("row", LOOK_ALIKES, ids=lambda row: row["id"])
def test_a_look_alike_teaches_no_window_and_triggers_nothing(row):
    verdict = verdict_of(row)
    assert not verdict.is_overflow
    assert not verdict.limit_is_learnable


KINDS = {row["id"]: row for row in LOOK_ALIKES}


@pytest.mark.parametrize(
    "name",
    [
        "databricks-maxtok",
        "anthropic-images",
        "copilot-images",
        "tgi-maxnew",
        "bedrock-maxlength",
        "azure-rate",
        "bedrock-wait",
        "deepseek-image-part",
        "openrouter-image-404",
        "litellm-budget",
        "zh-output",
        "zh-tools",
        "zh-sensitive",
        "tool-id",
        "thinking-budget",
        "access-token",
        "go-deadline",
        "overloaded",
        "cuda",
    ],
)
def test_a_look_alike_is_called_by_its_name(name: str):
    assert verdict_of(KINDS[name]).kind == KINDS[name]["kind"]
