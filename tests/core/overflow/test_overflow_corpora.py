"""The judge on labelled answers: the variants kept here, and the development corpus where it lies beside us."""

from pathlib import Path

import pytest
from overflow_score import Score, load, score, verdict_of

HERE = Path(__file__).parent
VARIANTS = HERE / "unseen_variants.jsonl"
DEVELOPMENT = HERE.parents[3] / "shared" / "overflow" / "corpus_dev.jsonl"


@pytest.fixture(scope="module")
def development() -> Score:
    if not DEVELOPMENT.exists():
        pytest.skip("the development corpus is not beside this repository; only the variants were scored")
    return score(load(DEVELOPMENT))


def test_the_development_corpus_is_recognised_without_a_false_trigger(development: Score):
    assert development.recall >= 0.95, development.confusions
    assert development.counts["false trigger"] == 0, development.confusions


def test_the_limits_of_the_development_corpus_are_read_and_none_is_wrong(development: Score):
    assert development.limits_read >= 0.95, development.confusions
    assert development.counts["wrong limit"] == 0, development.confusions


def test_variants_of_other_providers_are_recognised_without_a_false_trigger():
    result = score(load(VARIANTS))
    assert result.recall >= 0.95, result.confusions
    assert result.counts["false trigger"] == 0, result.confusions
    assert result.limits_read >= 0.95, result.confusions
    assert result.counts["wrong limit"] == 0, result.confusions


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
