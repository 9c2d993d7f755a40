"""Generates `config.example.yaml` from the settings, `docs/metrics.md` from the metrics, `docs/log.md` from the events.

Rule: settings and metrics are described where they are declared. The events listed here are exactly those that the code
writes; a test compares them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml
from prometheus_client.core import Metric
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.config import settings, upstreams
from proxy.config.sources import section_in
from proxy.core.conversation import tracked_message
from proxy.shell.telemetry import metrics, record

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
            sign = "#" if field.default_factory else ""  # the default of each machine: a copy should not fix this one
            yield f"{_blank(depth)}{sign}{name}: {_written(_default_of(field))}"
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
    """The default, or an example if the setting is required or its default is the machine's."""
    if field.is_required() or field.default_factory:
        return (field.examples or [None])[0]
    return field.get_default(call_default_factory=True)


def settings_docstrings() -> dict[str, dict[str, str]]:
    """Those of all sections of the settings."""
    return _docstrings(upstreams) | _docstrings(settings)


def _docstrings(module: ModuleType) -> dict[str, dict[str, str]]:
    """Docstrings below fields, by class and field; under the empty name, the docstring of the class."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            inherited = (found.get(ast.unparse(base), {}) for base in node.bases)
            found[node.name] = {name: text for of in inherited for name, text in of.items()}
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
[deploy/grafana](../deploy/grafana/context-proxy.json) shows them. With one worker, the usual `process_…` are there,
too: memory, CPU, open files, the time of the start.

| metric | type | labels | what it says |
|---|---|---|---|
"""

LOG_HEAD: Final = """\
# The log

One JSON object a line; on a terminal coloured text, where `request_done` is one sentence: request, model, API, status,
tokens as they came → as they were sent of those that the window leaves, edits, milliseconds. Never a key, never the
content of a message. Written by `make docs/log.md`.

| event | when |
|---|---|
"""
EVENTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("request_done",),
        "every chat request, however it ended: sizes, edits, times, outcome; a warning if the client got an error, "
        "unless a body that cannot be read or its departure was the cause; its fields are below",
    ),
    (("messages_compressed",), "`/v1/compress` answered a gateway: sizes before and after, edits by reason"),
    (
        ("request_planned",),
        "a request was changed: sizes before and after, edits by reason, the numbers of the messages that were "
        "`changed` and `left_out`, and the `artifacts` that hold what was taken out",
    ),
    (
        ("conversation_cut",),
        "the history of a conversation is cut for the first time in this process: whose (`client`, `key`), at which "
        "`turn`, and what, as `edits` by reason; later turns keep the cut and write no such line",
    ),
    (
        ("edit",),
        "at the level debug, for each message that is changed, up to 500 of each send: the `message`, by its number "
        "from 0, its `role` and `tool`, `reasons`, tokens before and after, `artifacts`, the `limit` that it exceeded",
    ),
    (
        ("model_limits",),
        "the limits that hold for a model, when they are first used and whenever they differ: the window, where it "
        "comes from, and how it is known (`stated`, `learned`, `inferred`, `guessed`); the most lines, bytes and "
        "characters of a tool result, and whether `settings` or the share of the `window` set the bytes",
    ),
    (
        ("tool_output_truncated", "artifact_saved"),
        "a tool result was cut at its `limit`, and all of it is in the file of that name",
    ),
    (("media_routed",), "an image, a sound or a file was moved or described: kind, type, bytes, route"),
    (("media_refused",), "media were refused and sent as text instead"),
    (
        ("overflow_detected", "overflow_retried", "original_retried"),
        "the upstream refused; what was sent next, with the same members as `request_planned`, and the goal that was "
        "used. `cause` and `cure` name a row of [the table of refusals](refusals.md), `named`, `limit` and `seen` what "
        "was stated, `learned` whether that is remembered at once; what the next response has to prove is logged then",
    ),
    (
        ("waiting_request_lost",),
        "a waiting request could not be written to a file, or read back, so it is not sent again: `problem`",
    ),
    (("history_healed",), "the upstream refused the history, which was repaired and sent again"),
    (
        ("lesson_learned",),
        "the upstream taught something about a model (`*`: about all): `lesson` names it, such as `window`, "
        "`at most images`, `refuses vision` or `ratio` with a counter, and `value` is the limit, or 1; 0: it no "
        "longer holds. `context-proxy models --forget --all` erases it",
    ),
    (
        ("configured_window_corrected",),
        "a refusal printed a window smaller than the configured one; requests are fitted to the smaller one until it "
        "is refuted or forgotten",
    ),
    (
        ("upstream_truncated_silently", "cut_retried"),
        "the upstream counted far less than was sent; what it certainly reads whole was sent next",
    ),
    (
        ("window_too_small",),
        "a server that cuts silently has a window smaller than system text and tools; what to set is in `advice`. This "
        "and the next two are written at once, and again every 15 minutes for the same model: `times` counts how often",
    ),
    (
        ("agent_too_large",),
        "the system text and the tools of an agent, `tokens`, are larger than the window; `advice` says what to do",
    ),
    (("system_text_long",), "the system text alone takes half of the room"),
    (("artifact_store_failed",), "the store cannot be written; requests continue, uncut if they fit"),
    (("artifacts_gone",), "what was stored in a bucket is no longer there; what requests contain is stored again"),
    (
        ("artifact_read",),
        "an artifact was read, or a read was refused; with a `round`: by the model, with the tool that it was offered; "
        "with a `tool`: by a client of MCP, with the tool that it called",
    ),
    (
        ("artifact_reading_ended",),
        "a search or the way to a part of JSON took longer than it may, or the key of a client has as many readings "
        "under way as it may; the `limit` says which",
    ),
    (
        ("image_fetched", "image_not_fetched"),
        "with `media.fetch_remote_images`: what became of an image on the web; its host, never the whole address",
    ),
    (("artifacts_swept",), "old artifacts were deleted, or the least recently used ones above the size limit"),
    (
        ("request_refused",),
        "a client was cut off before the proxy had the head of its request (too long, too slow, not HTTP, or one "
        "connection too many), it called by a name that is not in `server.host_names`, or for what is never forwarded "
        "(a WebSocket, TRACE, a path with dots); the reason is in `problem`",
    ),
    (
        ("wrong_admin_key",),
        "a client requested one of the operator's pages with a key other than `server.admin_key`: the `client`'s "
        "address, and what `X-Forwarded-For` claims; never the key",
    ),
    (
        ("request_not_read", "passthrough_failed"),
        "a compression that the proxy cannot read; a request to another path without a response",
    ),
    (
        ("decisions_not_kept",),
        "the file with the latest requests is locked, broken or cannot be written: each worker shows its own until the "
        "file works again; a broken one is put aside, and one that was removed is made again; of more than 2,000 "
        "that wait, the oldest are not kept",
    ),
    (
        ("decisions_upgraded",),
        "at the first start of a release whose file has another shape: the files of `/decisions` that were `deleted`",
    ),
    (
        ("learning_not_kept", "learning_not_read", "learning_not_erased"),
        "the data folder cannot be written; only what was learned is lost",
    ),
    (
        ("owner_secret_not_kept",),
        "the secret of tenants cannot be written to the data folder, and lasts as long as the process",
    ),
    (
        ("secret_not_set",),
        "the secret was found where 0.2.0 kept it, in the store at `artifacts.url`; `set` says how to make it "
        "`server.secret`",
    ),
    (
        ("state_lost", "state_found", "state_failed"),
        "the server at `state.url` is unreachable, or reachable again, or a defect of the proxy prevents its use; "
        "meanwhile each replica uses what it knows and learns itself",
    ),
    (
        ("catalogue_unavailable", "models_listed", "models_not_listed", "window_allocated"),
        "where the windows of models come from: lists, the catalogue, what a self-hosted server has allocated",
    ),
    (
        ("windows_guessed", "window_guessed"),
        "no source states a window for this upstream: at the start, and with the first long request to a model; how to "
        "state it is in `advice`",
    ),
    (
        ("reading_broken",),
        "the model read a page of what was cut, and the request to go on with it failed (`problem`); the response ends "
        "there, and says so",
    ),
    (
        ("planning_failed", "reference_failed", "judging_failed", "request_failed"),
        "a defect of the proxy; the request is sent unchanged if possible",
    ),
    (("recurring_failed",), "a defect of the proxy in work that recurs, such as reading lessons; it is done again"),
    (("mcp_failed",), "the SDK of MCP reports a failure of its own; only its kind, as its words may quote a client"),
    (("metrics_not_shared",), "no folder for temporary files: each worker's `/metrics` reports its own figures"),
    (
        ("listening",),
        "the port is open; `data_dir` is the data folder, and `user_data_dir` the one that would be used without the "
        "`.context-proxy` in the current folder",
    ),
    (
        ("not_announced",),
        "nothing can be written to the data folder, so `context-proxy status` and `run` do not find this proxy",
    ),
    (
        ("stopped",),
        "the last line of each worker that was stopped: after `seconds`, and its last response",
    ),
    (
        ("settings_reloaded", "settings_not_reloaded"),
        "after SIGHUP or `POST /-/reload`: the outcome; `restart_needed` names what needs a restart; invalid "
        "settings change nothing, and `problem` has a line for each mistake",
    ),
)
"""(Names of events, their meaning), the most frequent ones first."""
FIELDS_HEAD: Final = """\
## Fields of a request

Those of `request_done`, of each request in `/decisions`, and of spans, where the names begin with `context_proxy.`
unless the conventions have one. Tokens are the model's, estimated where nothing else is said. A field that is not set
is left out.

| field | type | what it says |
|---|---|---|"""
OUTCOMES_HEAD: Final = """\
## Outcomes

How a chat request ended: `outcome` in `request_done`, in `/decisions`, in the metrics and on the dashboard; in spans,
`error.type`. A request that was sent again has the outcome of its last response.

| outcome | what it means |
|---|---|"""
REASONS_HEAD: Final = """\
## Reasons for edits

They appear in the log, in `x-context-proxy-edits`, in `/decisions` and in the metrics.

| reason | what was done N times | in detail |
|---|---|---|"""


def _without_quotes(annotation: object) -> str:
    return str(annotation).replace('"', "`").replace("|", "or").replace("Mapping[str, int]", "object")


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
    docstrings = _docstrings(tracked_message)[tracked_message.Reason.__name__]
    described = _docstrings(record)[record.RequestRecord.__name__]
    fields = [
        f"| `{one.name}` | {_without_quotes(one.type)} | {' '.join(described.get(one.name, '').split())} |"
        for one in dataclasses.fields(record.RequestRecord)
    ]
    details = {reason: " ".join(docstrings.get(reason.name, "").split()) for reason in tracked_message.Reason}
    endings = _docstrings(record)[record.RequestOutcome.__name__]
    outcomes = [f"| `{one.value}` | {' '.join(endings[one.name].split())} |" for one in record.RequestOutcome]
    reasons = [
        f"| `{one.value}` | {one.several.replace('#', 'N')} | {details[one]} |" for one in tracked_message.Reason
    ]
    return (
        LOG_HEAD
        + "\n".join([*events, "", FIELDS_HEAD, *fields, "", OUTCOMES_HEAD, *outcomes, "", REASONS_HEAD, *reasons])
        + "\n"
    )


def metric_families() -> list[tuple[Metric, Sequence[str]]]:
    """Every metric without its values, with the names of its labels."""
    made = metrics.Metrics()
    each = (*made.counters.values(), *made.gauges.values(), *made.histograms.values())
    found: list[tuple[Metric, Sequence[str]]] = [(family, one._labelnames) for one in each for family in one.collect()]
    own = (metrics.learned_limits([]), metrics.spent([], {}))
    return [*found, *((one, one._labelnames) for one in own)]


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
