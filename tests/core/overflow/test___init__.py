"""The face of the package: it judges, and loads the words of refusals only for that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proxy.core.overflow import ErrorReport, ErrorText, Sent, VerdictKind, judge, judging

TOO_LONG = ErrorReport(400, texts=[ErrorText("error.message", "maximum context length is 4096 tokens")])


@pytest.mark.parametrize("sent", [None, Sent(9_000, 36_000, 8_192)])
def test_it_judges_as_the_module_behind_it(sent: Sent | None) -> None:
    verdict = judge(TOO_LONG, sent)
    assert verdict == judging.judge(TOO_LONG, sent)
    assert (verdict.kind, verdict.limit) == (VerdictKind.PROMPT, 4096)


@pytest.mark.parametrize(("done", "loaded"), [("", "False"), ("overflow.prepare()", "True")])
def test_the_words_are_loaded_on_demand(done: str, loaded: str) -> None:
    imports = "import sys, proxy.app; from proxy.core import overflow"
    code = f"{imports}; {done}\nprint('proxy.core.overflow.words' in sys.modules)"
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert reported.stdout.strip() == loaded
