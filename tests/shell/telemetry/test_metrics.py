import os
import re
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from support.planners import TENANT, body, planner, run

from proxy import __version__
from proxy.core.overflow import AttemptKind, Counted, Cure, Exactness, Scope, Unit, Verdict, VerdictKind
from proxy.errors import ClientLeft
from proxy.shell.models import Learning, Price
from proxy.shell.telemetry import Recorder, RequestOutcome, RequestRecord
from proxy.shell.telemetry.metrics import SHARED_FOLDER, Metrics
from proxy.wire.chat_completions import CHAT_COMPLETIONS


@pytest.fixture
def metrics(monkeypatch):
    monkeypatch.delenv(SHARED_FOLDER, raising=False)
    return Metrics()


def values(metrics, beginning=""):
    """Non-zero samples whose names begin so: `name{label}` without the prefix to its value."""
    found = {}
    for family in text_string_to_metric_families(metrics.exposed().decode()):
        for sample in family.samples:
            is_own = sample.name.startswith("context_proxy_") and sample.name != "context_proxy_build_info"
            if is_own and sample.value and not sample.name.endswith(("_bucket", "_created")):
                labels = ",".join(str(value) for value in sample.labels.values())
                found[sample.name.removeprefix("context_proxy_") + (f"{{{labels}}}" if labels else "")] = sample.value
    return {name: value for name, value in found.items() if name.startswith(beginning)}


async def served(metrics, content, *, retried=False, fails=False):
    recorder = Recorder(metrics)
    with capture_logs():
        record = recorder.begin("req")
        record.note_body(len(content))
        planned = await planner().plan(CHAT_COMPLETIONS, TENANT, content)
        record.note_plan(planned)
        recorder.plan_made(record, planned)
        record.note_sent(1)
        record.note_answer(400 if retried else 200)
        if retried:
            recorder.overflowed(record, Verdict(VerdictKind.PROMPT))
            recorder.retried(record, planned, Cure(AttemptKind.EMERGENCY), Verdict(VerdictKind.PROMPT))
            record.note_sent(1)
            record.note_answer(200)
        if fails:
            record.note_error(ClientLeft("gone"))
        running = values(metrics)
        recorder.finish(record)
    return planned, running


async def test_a_request_is_counted_with_its_sizes_and_reasons(metrics):
    planned, running = await served(metrics, body(run(80), stream=True))
    assert (running["running_requests"], running["running_streams"]) == (1, 1)
    found = values(metrics)
    first_byte = f"upstream_first_byte_seconds_count{{,{planned.request.model},}}"
    for name in ("requests_total{answered}", "attempts_total{first}", "own_seconds_count", first_byte):
        assert found[name] == 1
    tokens = (planned.plan.before.tokens, planned.plan.after.tokens)
    assert (found["received_tokens_total"], found["sent_tokens_total"]) == tokens
    edits = {f"edits_total{{{reason}}}": count for reason, count in planned.reasons.items()}
    assert values(metrics, "edits") == edits
    assert not found.keys() & {"running_requests", "running_streams", "prefix_kept_ratio_count"}


@pytest.mark.parametrize(("fails", "cured"), [(False, {"overflows_cured_total": 1}), (True, {})])
async def test_an_overflow_is_counted_and_its_cure_unless_the_client_left(metrics, fails, cured):
    await served(metrics, body(run(10)), retried=True, fails=fails)
    names = ("overflows_total{prompt}", "attempts_total{first}", "attempts_total{emergency}")
    assert values(metrics, ("overflows", "attempts")) == dict.fromkeys(names, 1) | cured


def recorded(**fields):
    described = {"api": "chat", "client": "codex", "status": 200, "upstream": "api.test"}
    return RequestRecord.of({"request_id": "req", **described, **fields})


def test_a_request_that_needs_attention_is_counted_although_it_was_answered(metrics):
    metrics.finished(recorded(window_is_guessed=True, tokens_before=5, window_tokens=9))
    metrics.finished(recorded(window_is_guessed=True, tokens_before=4, window_tokens=9))
    metrics.finished(recorded(warning="window_too_small"))
    metrics.finished(recorded())
    counted = values(metrics, "warned")
    reasons = ("window_guessed", "window_too_small")
    assert counted == {f"warned_requests_total{{{reason},api.test}}": 1 for reason in reasons}


async def test_responses_are_counted_by_outcome_status_api_client_model_and_upstream(metrics):
    for status, client in ((200, "codex"), (401, "codex"), (503, "codex"), (504, "crush")):
        outcome = RequestOutcome.of_status(status)
        metrics.finished(recorded(client=client, outcome=outcome, status=status, model="m"))
    ways = ("codex,m,answered,2xx", "codex,m,refused,401", "codex,m,upstream_error,5xx", "crush,m,upstream_error,5xx")
    assert values(metrics, "responses_total") == {f"responses_total{{chat,{way},api.test}}": 1 for way in ways}


def test_tokens_are_counted_as_upstreams_report_them_by_client_and_model(metrics):
    for status, counted in ((200, Counted(900, 40, 600)), (200, Counted(1000, 2, 0)), (401, None)):
        record = recorded(status=status)
        record.note_sent(1)
        record.note_counts(counted)
        metrics.finished(record)
    assert values(metrics, "usage_tokens_total") == {
        "usage_tokens_total{codex,,api.test,prompt}": 1900,
        "usage_tokens_total{codex,,api.test,cached}": 600,
        "usage_tokens_total{codex,,api.test,reply}": 42,
    }


def waited(seconds, client="codex"):
    record = recorded(client=client)
    record.sent, record.answered = 5.0, 5.0 + seconds
    record.complete(10.0)
    return record


def test_waits_for_the_first_byte_are_reported_by_client_model_and_upstream(metrics):
    for seconds, client in ((0.5, "codex"), (2.0, "codex"), (4.0, "crush")):
        metrics.finished(waited(seconds, client))
    assert values(metrics, "upstream_first_byte") == {
        "upstream_first_byte_seconds_count{codex,,api.test}": 2,
        "upstream_first_byte_seconds_sum{codex,,api.test}": 2.5,
        "upstream_first_byte_seconds_count{crush,,api.test}": 1,
        "upstream_first_byte_seconds_sum{crush,,api.test}": 4,
    }


def test_costs_are_reported_by_client_for_models_with_a_price(metrics):
    prices = {"m": Price(2.0, 1.0, 8.0)}
    metrics.price_of = {"api.test": prices.get}
    codex = ("codex", "m", "api.test")
    for labels in (codex, codex, ("crush", "m", "api.test"), ("crush", "free", "api.test"), ("crush", "m", "own")):
        for usage, tokens in (("prompt", 1_000_000), ("cached", 500_000), ("reply", 10_000)):
            metrics.counters["usage_tokens"].labels(usage, *labels).inc(tokens)
    metrics.counters["usage_tokens"].labels("prompt", "new", "m", "api.test").inc(1_000_000)  # it counts just now
    assert values(metrics, "spent") == {
        "spent_dollars_total{new,m,api.test}": 2.0,
        "spent_dollars_total{codex,m,api.test}": 3.16,
        "spent_dollars_total{crush,m,api.test}": 1.58,
    }


def test_cut_results_are_counted_by_limit_without_its_value_and_without_names_of_tools(metrics):
    tools = "tool_output.tools.x.max_bytes=7"
    for limit in ("tool_output.max_lines=2000", "tool_output.max_lines=9", "window=800", tools):
        metrics.result_cut(limit)
    assert values(metrics, "cut_results_total") == {
        "cut_results_total{tool_output.max_lines}": 2,
        "cut_results_total{window}": 1,
        "cut_results_total{tool_output.tools}": 1,
    }


def test_foreign_names_cannot_make_series_without_end(metrics, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.metrics.MAX_RESPONSE_SERIES", 3)
    monkeypatch.setattr("proxy.shell.telemetry.metrics.MAX_TIMED_SERIES", 2)
    for number in range(20):
        metrics.finished(waited(1.0, f"client-{number}"))
    timed = values(metrics, "upstream_first_byte_seconds_c")
    assert list(timed.values()) == [1, 1, 18]
    assert timed["upstream_first_byte_seconds_count{other,other,api.test}"] == 18
    reported = values(metrics, "responses_total")
    assert len(reported) == 4
    assert reported["responses_total{chat,other,other,answered,2xx,api.test}"] == 17


def test_the_version_and_the_process_are_exposed(metrics):
    reported = metrics.exposed().decode()
    assert f'context_proxy_build_info{{version="{__version__}"}} 1.0' in reported
    assert re.search(r"^process_resident_memory_bytes \d", reported, re.MULTILINE)


def test_what_is_under_way_is_noted_for_other_workers_whenever_the_load_is(metrics):
    metrics.under_way = {1: RequestRecord("req", 0.0)}
    metrics.set_levels(queued_requests=2)
    levels = {name: gauge.collect()[0].samples[0].value for name, gauge in metrics.gauges.items()}
    assert (levels["running_requests"], levels["running_streams"], levels["queued_requests"]) == (1, 0, 2)


def test_what_the_store_says_is_counted(metrics):
    metrics.saved(100)
    metrics.saved(50)
    metrics.stored(7, 7_000)
    assert values(metrics) == {
        "saved_artifacts_total": 2,
        "saved_artifact_bytes_total": 150,
        "stored_artifacts": 7,
        "stored_artifact_bytes": 7_000,
    }


def test_learned_limits_are_exposed_as_of_the_scrape(tmp_path):
    learning = Learning(tmp_path, "http://upstream/v1")
    metrics = Metrics()
    metrics.learning = [learning]
    assert values(metrics) == {}
    verdict = Verdict(
        VerdictKind.PROMPT, limit=32_000, limit_scope=Scope.WINDOW, unit=Unit.TOKENS, exactness=Exactness.EXACT
    )
    with capture_logs():
        learning.note_refusal('m"\n\ud800', verdict, 40_000)
    assert list(values(metrics).values()) == [32_000]


TWO_WORKERS = """
import os, shutil, sys
sys.path.insert(0, os.getcwd())
from proxy.shell.models.catalogue import Price
from proxy.shell.telemetry.metrics import Metrics
from proxy.shell.telemetry import RequestRecord
metrics = Metrics()
child = os.fork()
metrics = metrics if child else Metrics()
if not child:
    metrics.saved(10); metrics.set_levels()
    metrics.counters["usage_tokens"].labels("prompt", "codex", "m", "api.test").inc(500_000)
    os._exit(0)
os.waitpid(child, 0)
metrics.saved(5)
metrics.under_way = {1: RequestRecord("req", 0.0)}
for kind in ("prompt", "cached", "reply"):
    metrics.counters["usage_tokens"].labels(kind, "codex", "m", "api.test").inc(500_000)
metrics.price_of = {"api.test": lambda model: Price(2.0, 1.0, 8.0)}
sys.stdout.write(metrics.exposed().decode())
shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"])
sys.stdout.write("AFTER" + metrics.exposed().decode())
"""


def test_workers_that_share_a_folder_report_the_sum(tmp_path):
    environment = {**os.environ, SHARED_FOLDER: str(tmp_path)}
    reported, _, after = subprocess.run(
        [sys.executable, "-c", TWO_WORKERS], env=environment, capture_output=True, text=True, check=True
    ).stdout.partition("AFTER")
    assert "context_proxy_saved_artifact_bytes_total 15.0" in reported
    assert "context_proxy_running_requests 1.0" in reported
    assert "context_proxy_learned_limit_tokens" in reported
    spent = 'context_proxy_spent_dollars_total{client="codex",model="m",upstream="api.test"}'
    assert f"{spent} 5.5" in reported  # 1,000,000 prompt tokens, 500,000 of them cached, and 500,000 of replies
    assert "context_proxy_saved_artifact_bytes_total 5.0" in after, "the folder is gone: each worker reports its own"
