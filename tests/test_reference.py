"""The README names every log event and every reason that the code can write."""

from __future__ import annotations

import ast
from pathlib import Path

from proxy.core.edits import Reason

ROOT = Path(__file__).parent.parent
LEVELS = {"debug", "info", "warning", "error", "exception"}


def events() -> set[str]:
    found = set()
    for path in (ROOT / "proxy" / "shell").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.add(first.value)
    return found


def test_every_log_event_stands_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert len(events()) > 10
    assert [event for event in sorted(events()) if f"`{event}`" not in readme] == []


def test_every_reason_stands_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in readme] == []
