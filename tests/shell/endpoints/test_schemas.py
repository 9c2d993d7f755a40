from __future__ import annotations

import ast
import inspect

from proxy.shell.endpoints import schemas
from proxy.shell.telemetry import decision, record


def test_every_member_that_a_decision_may_have_is_described() -> None:
    """Some stand in few decisions: those of servers that cut silently, of images that were fetched."""
    written: set[str] = set()
    for function in (
        decision.Decision.described,
        decision.Decision._described_upstream,
        decision._described_plan,
        record.Finished.summary,
    ):
        for node in ast.walk(ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)))):
            keys = node.keys if isinstance(node, ast.Dict) else []
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                keys = [node.slice]
            written |= {key.value for key in keys if isinstance(key, ast.Constant)}
    shares = set(schemas.Shares.model_fields)
    assert written - shares | {"id"} == set(schemas.Decision.model_fields)
