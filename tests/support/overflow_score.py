"""Scores the judge on labelled answers: `python -m tests.support.overflow_score FILE` prints every confusion.

Rule: recall and precision are of the clear rows; a row marked `ambiguous` is shown, never counted.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.core.overflow import Verdict
from proxy.wire.error_bodies import judge_answer


@dataclass
class Score:
    """Counts over one file."""

    counts: Counter[str] = field(default_factory=Counter)
    confusions: list[str] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.counts["hit"] / max(1, self.counts["overflow"])

    @property
    def limits_read(self) -> float:
        return self.counts["limit read"] / max(1, self.counts["limit printed"])


def load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def verdict_of(row: dict[str, Any]) -> Verdict:
    body = row["body"] if isinstance(row["body"], str) else json.dumps(row["body"], ensure_ascii=False)
    return judge_answer(row["http_status"] or 400, [], body.encode("utf-8", "surrogatepass"))


def score(rows: list[dict[str, Any]]) -> Score:
    """Score the clear rows; `silent_truncation` is no answer that says anything and is left out."""
    result = Score()
    for row in rows:
        verdict = verdict_of(row)
        is_overflow = row["label"] == "overflow"
        wrong = []
        if is_overflow != verdict.is_overflow:
            wrong.append("missed" if is_overflow else "FALSE TRIGGER")
        limit = row.get("limit")
        if is_overflow and limit is not None and verdict.limit != limit:
            wrong.append(f"limit {verdict.limit} not {limit}")
        if is_overflow and limit is None and verdict.limit is not None:
            wrong.append(f"limit {verdict.limit} out of nothing")
        for name, member in (("prompt", "prompt_tokens"), ("reply", "completion_tokens"), ("requested", "requested")):
            expected = row.get(member)
            if (
                verdict.is_overflow
                and is_overflow
                and member not in (row.get("derived") or ())
                and expected != getattr(verdict, name)
            ):
                wrong.append(f"{name} {getattr(verdict, name)} not {expected}")
        if not is_overflow and verdict.limit_is_learnable and limit != verdict.limit:
            wrong.append(f"WRONG LIMIT LEARNT {verdict.limit}")
        clear = not row.get("ambiguous") and row.get("delivery") != "silent_truncation"
        if wrong:
            mark = "" if clear else "(not counted) "
            result.confusions.append(
                f"{mark}{row['id']}: {', '.join(wrong)} [{verdict.kind} {verdict.confidence} {verdict.evidence}]"
            )
        if not clear:
            continue
        _count(result.counts, row, verdict, is_overflow=is_overflow)
    return result


def _count(counts: Counter[str], row: dict[str, Any], verdict: Verdict, *, is_overflow: bool) -> None:
    counts["overflow" if is_overflow else "not overflow"] += 1
    if is_overflow and verdict.is_overflow:
        counts["hit"] += 1
    if not is_overflow and verdict.is_overflow:
        counts["false trigger"] += 1
    if is_overflow and row.get("limit") is not None:
        counts["limit printed"] += 1
        counts["limit read"] += verdict.limit == row["limit"]
    if verdict.limit is not None and verdict.limit != row.get("limit"):
        counts["wrong limit"] += 1


def main() -> None:
    for name in sys.argv[1:]:
        result = score(load(Path(name)))
        print(*result.confusions, sep="\n")
        print(f"{name}: recall {result.recall:.3f}, limits read {result.limits_read:.3f}, {dict(result.counts)}")


if __name__ == "__main__":
    main()
