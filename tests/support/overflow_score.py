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

from proxy.core.overflow import Sent, Verdict
from proxy.wire import judge_answer


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

    @property
    def learnability(self) -> float:
        """The share of the refusals that state limit and count exactly after which the limit is known."""
        return self.counts["learnt"] / max(1, self.counts["exact"])


def load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def verdict_of(row: dict[str, Any], sent: Sent | None = None, request: bytes = b"") -> Verdict:
    body = _text(row).encode("utf-8", "surrogatepass")
    return judge_answer(row["http_status"] or 400, [], body, sent=sent, request=request)


def counted_in(row: dict[str, Any]) -> int | None:
    """The prompt's tokens by a refusal that states them, or the whole request's, and its limit; None for others."""
    printed = "".join(character for character in _text(row) if character not in ",._' ")
    prompt, requested = row["prompt_tokens"], row["requested"]
    is_counted = any(count and str(count) in printed for count in (prompt, requested))
    if row["unit"] != "tokens" or not is_counted or str(row["limit"]) not in printed:
        return None
    return prompt or requested - (row["completion_tokens"] or 0)


def is_learnt(row: dict[str, Any], prompt_tokens: int) -> bool:
    """Whether the refusal of a prompt of so many tokens teaches the limit, if the window is unknown."""
    sent = Sent(prompt_tokens, 4 * prompt_tokens, window_is_certain=False, reply_tokens=row["completion_tokens"])
    verdict = verdict_of(row, sent)
    return verdict.limit_is_learnable and verdict.limit == row["limit"]


def _text(row: dict[str, Any]) -> str:
    return row["body"] if isinstance(row["body"], str) else json.dumps(row["body"], ensure_ascii=False)


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
        if is_overflow and (tokens := counted_in(row)) is not None:
            result.counts["exact"] += 1
            result.counts["learnt"] += (learnt := is_learnt(row, tokens))
            result.confusions += [] if learnt else [f"{row['id']}: its limit is not learnt"]
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
        print(
            f"{name}: recall {result.recall:.3f}, limits read {result.limits_read:.3f}, learnability "
            f"{result.learnability:.3f}, {dict(result.counts)}"
        )


if __name__ == "__main__":
    main()
