"""docs/log.md names every log event and every reason that the code can write, and nothing else."""

import ast
from pathlib import Path

from proxy.core.conversation import Reason
from proxy.core.overflow import CURES
from proxy.shell.telemetry import recorder
from tools.handbook import refusals_page
from tools.handbook.reference import EVENTS

ROOT = Path(__file__).parents[3]
LEVELS = {"debug", "info", "warning", "error", "exception"}


def _log_calls(tree):
    """First arguments of calls that log; both sides of `"a" if x else "b"`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            first = node.args[0] if node.args else None
            sides = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            found |= {side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)}
    return found


def events_in_code():
    modules = [*(ROOT / "proxy" / "shell").rglob("*.py"), ROOT / "proxy" / "server.py", ROOT / "proxy" / "app.py"]
    return set().union(*(_log_calls(ast.parse(path.read_text())) for path in modules))


def test_every_log_event_of_the_code_is_explained():
    explained = {name for names, _ in EVENTS for name in names}
    assert len(events_in_code()) > 20
    assert (events_in_code() | set(recorder._RETRIED.values())) - explained == set()


def test_every_documented_event_exists_in_the_code():
    code = "".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
    assert [name for names, _ in EVENTS for name in names if f'"{name}"' not in code] == []


def test_the_page_about_the_log_is_what_the_code_says():
    page = (ROOT / "docs" / "log.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("|") and not line.endswith("|")] == []
    assert [reason.value for reason in Reason if f"| `{reason.value}` | " not in page] == []


def test_the_page_of_refusals_describes_each_row_of_the_table_of_cures_and_nothing_else():
    causes = [row.cause for row in CURES]
    for described in (refusals_page.RECOGNISED, refusals_page.SENT):
        assert list(described) == causes
    assert {name for row in CURES for name in row.learned} == set(refusals_page.NAMES)
