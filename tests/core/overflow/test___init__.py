"""The face of the package loads the words of refusals only to judge."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("done", "loaded"), [("", "False"), ("overflow.prepare()", "True")])
def test_the_words_are_loaded_on_demand(done: str, loaded: str) -> None:
    imports = "import sys, proxy.app; from proxy.core import overflow"
    code = f"{imports}; {done}\nprint('proxy.core.overflow.words' in sys.modules)"
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert reported.stdout.strip() == loaded
