"""Generates `config.example.yaml` from the settings, `docs/metrics.md` from the metrics, `docs/log.md` from the events.

Rule: this module describes no setting, metric or event; they are described where they are declared. `python -m
proxy.reference` prints the first file, `python -m proxy.reference metrics` and `… log` the others.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.config import settings, upstreams
from proxy.config.sources import section_in
from proxy.core.conversation import edit as edits
from proxy.shell.telemetry import metrics
from proxy.shell.telemetry.events import EVENTS

LINE_CHARS: Final = 110
HEAD: Final = """\
# Every setting of context-proxy with its default; generated from proxy/config by make config.example.yaml.
# Each can also be set by a variable, such as CONTEXT_PROXY_SERVER__PORT=8080, which beats this file; flags beat both.
# Lines that begin with `#` and no space after it are settings, too: remove the `#` from the whole block.
"""


def render() -> str:
    """The whole file."""
    return HEAD + "\n".join(_lines(settings.Settings, settings_docstrings(), 0)) + "\n"


def _lines(section: type[BaseModel], docstrings: Mapping[str, Mapping[str, str]], depth: int) -> Iterator[str]:
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        if depth == 0:
            yield ""
        yield from _comment(docstrings[section.__name__].get(name) or docstrings[_name_of(inner)][""], depth)
        several = field.annotation is not inner
        if inner is None:
            yield f"{_blank(depth)}{name}: {_written(_default_of(field))}"
        elif not several:
            yield f"{_blank(depth)}{name}:"
            yield from _lines(inner, docstrings, depth + 1)
        else:
            yield from _commented_out(name, field, _lines(inner, docstrings, 1), depth)


def _commented_out(name: str, field: FieldInfo, entry: Iterator[str], depth: int) -> Iterator[str]:
    """An entry of a list, or one under a name, which is not a default: remove the `#` to use it."""
    yield f"{_blank(depth)}#{name}:"
    if field.examples:
        yield f"{_blank(depth)}#  {field.examples[0]}:"
        yield from (f"{_blank(depth)}#  {line}" for line in entry)
        return
    yield from (f"{_blank(depth)}#  {'- ' if number == 0 else '  '}{line.strip()}" for number, line in enumerate(entry))


def _default_of(field: FieldInfo) -> Any:
    """The default, or an example if the setting is required."""
    if field.is_required():
        return (field.examples or [None])[0]
    return field.get_default(call_default_factory=True)


def settings_docstrings() -> dict[str, dict[str, str]]:
    """Those of all sections of the settings."""
    return _docstrings(upstreams) | _docstrings(settings)


def _docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    """By class and field, the string below the field; under the empty name, the docstring of the class."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            inherited = (found.get(ast.unparse(base), {}) for base in node.bases)
            found[node.name] = {name: said for of in inherited for name, said in of.items()}
            found[node.name][""] = ast.get_docstring(node) or ""
            for field, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign | ast.Assign) and isinstance(below, ast.Expr):
                    target = field.target if isinstance(field, ast.AnnAssign) else field.targets[0]
                    found[node.name][ast.unparse(target)] = str(ast.literal_eval(below.value))
    return found


def _name_of(section: type[BaseModel] | None) -> str:
    return section.__name__ if section else ""


def _comment(text: str, depth: int) -> list[str]:
    start = _blank(depth) + "# "
    return textwrap.wrap(" ".join(text.split()), LINE_CHARS, initial_indent=start, subsequent_indent=start)


def _blank(depth: int) -> str:
    return "  " * depth


def _written(default: Any) -> str:
    if isinstance(default, Enum | Path):
        default = default.value if isinstance(default, Enum) else str(default)
    if isinstance(default, frozenset | tuple):
        default = sorted(default)
    return yaml.safe_dump(default, default_flow_style=True, width=LINE_CHARS).removesuffix("...\n").strip()


METRICS_HEAD: Final = """\
# Metrics

What `/metrics` reports, in Prometheus' text format; written by `make docs/metrics.md` from
`proxy/shell/telemetry/metrics.py`. With several workers, each of them reports the figures of all
together. Counters begin at 0 when the proxy starts; sizes in tokens are estimates.
[deploy/grafana](../deploy/grafana/context-proxy.json) shows them.

| metric | type | labels | what it says |
|---|---|---|---|
"""

LOG_HEAD: Final = """\
# The log

One JSON object a line, coloured text on a terminal; never a key, never the content of a message. Written by `make
docs/log.md` from `proxy/shell/telemetry/events.py`.

| event | when |
|---|---|
"""
REASONS_HEAD: Final = """\
## Reasons for edits

They appear in the log, in `x-context-proxy-edits`, in `/decisions` and in the metrics.

| reason | what was done N times | in detail |
|---|---|---|"""


def render_metrics() -> str:
    """The page about the metrics."""
    rows: list[str] = []
    used: set[str] = set()
    for family, labels in metric_families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        used.update(labels)
        rows.append(f"| `{name}` | {family.type} | {_named(labels) or '–'} | {family.documentation} |")
    values = [f"* `{label}`: {_named(metrics.LABEL_VALUES[label])}" for label in metrics.LABEL_VALUES if label in used]
    return METRICS_HEAD + "\n".join([*rows, "", "Labels:", "", *values]) + "\n"


def render_log() -> str:
    """The page about the log and the reasons for edits."""
    events = [f"| {_named(names)} | {text} |" for names, text in EVENTS]
    said = _docstrings(edits)[edits.Reason.__name__]
    details = {reason: " ".join(said.get(reason.name, "").split()) for reason in edits.Reason}
    reasons = [f"| `{one.value}` | {one.several.replace('#', 'N')} | {details[one]} |" for one in edits.Reason]
    return LOG_HEAD + "\n".join([*events, "", REASONS_HEAD, *reasons]) + "\n"


def metric_families() -> list[tuple[Metric, Sequence[str]]]:
    """Every metric without its values, with the names of its labels."""
    found: list[tuple[Metric, Sequence[str]]] = []
    for metric in vars(metrics.Metrics()).values():
        if isinstance(metric, metrics.LearnedCollector | metrics.Spread | MetricWrapperBase) and not getattr(
            metric, "_labelvalues", ()
        ):
            (family,) = metric.describe()
            labels = getattr(family, "_labelnames", ()) or getattr(metric, "_labelnames", ())
            found.append((family, labels))
    return found


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


PAGES: Final[Mapping[str, Callable[[], str]]] = {"config": render, "metrics": render_metrics, "log": render_log}

if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1] if sys.argv[1:] else "config"]())
