"""The entry of a request: one line however it ends, with sizes and reasons, never with content."""

import json
import time

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from support import planners
from support.strategies import exchange, system, user

from proxy.core.overflow import AttemptKind, Cure
from proxy.errors import UpstreamTimeout
from proxy.shell.telemetry import Recorder, RequestRecord
from proxy.shell.telemetry.metrics import Metrics
from proxy.wire.chat_completions import CHAT_COMPLETIONS

LONG = "".join(f"canary line {number}\n" for number in range(5_000))


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def recorder(metrics):
    return Recorder(metrics)


def body(text, *, said="canary", **members):
    return planners.body([system(said), user("canary"), *exchange([text], first_call=0)], **{"tools": [], **members})


async def planned_for(content):
    return await planners.planner(128_000).plan(CHAT_COMPLETIONS, planners.TENANT, content)


async def recorded(recorder, planned):
    """The log lines of a request that went well, but for those that other tests are about."""
    with capture_logs() as log:
        record = recorder.begin("req-1")
        record.note_body(100)
        if planned is not None:
            record.note_plan(planned)
            recorder.plan_made(record, planned)
        record.note_sent(50)
        record.note_answer(200)
        record.answer_bytes = 7
        recorder.finish(record)
    return [line for line in log if line["event"] not in ("model_limits", "edit")]


async def test_a_plan_that_changes_something_is_logged_with_its_sizes(recorder, metrics):
    planned = await planned_for(body(LONG))
    lines = plan, truncated, done = await recorded(recorder, planned)
    assert [line["event"] for line in lines] == ["request_planned", "tool_output_truncated", "request_done"]
    assert plan["tokens_after"] < plan["tokens_before"]
    assert plan["chars_after"] < plan["chars_before"]
    assert (plan["messages_before"], plan["messages_dropped"], plan["truncated"]) == (4, 0, True)
    assert plan["edits"] == done["edits"] == {"retrieval_tool": 1, "truncate_tool_output": 1}
    assert (truncated["tool"], truncated["original_chars"]) == ("read_file", len(LONG))
    assert truncated["artifact"].startswith("tool_read_file_")
    setting = truncated["limit"].partition("=")[0]
    cut = f'context_proxy_cut_results_total{{limit="{setting}"}} 1.0'
    assert cut in metrics.exposed().decode()
    assert (done["status"], done["outcome"], done["answer_bytes"], done["sent_bytes"]) == (200, "answered", 7, 50)
    assert all(done[name] >= 0 for name in ("own_ms", "first_byte_ms", "total_ms"))


async def test_a_plan_that_changes_nothing_and_a_request_that_was_not_read_are_one_line(recorder):
    for planned in (await planned_for(body("short")), None):
        (done,) = await recorded(recorder, planned)
        assert done["event"] == "request_done"
        assert ("tokens_before" in done) == (planned is not None)


async def test_no_content_is_in_any_line_or_header(recorder):
    planned = await planned_for(body(LONG, said="canary " * 40_000))
    log = await recorded(recorder, planned)
    record = RequestRecord("req-1", started=0.0, planned=planned)
    assert "canary" not in json.dumps(log)
    assert "canary" not in str(record.headers())


async def test_the_name_of_a_model_is_bounded(recorder):
    log = await recorded(recorder, await planned_for(body(LONG, model="m" * 10_000)))
    assert {len(line["model"]) for line in log if "model" in line} == {256}


@pytest.mark.parametrize(("window_tokens", "warned"), [(16_000, 1), (64_000, 0)])
async def test_a_system_text_over_half_of_the_room_is_reported_for_a_new_conversation_only(
    recorder, window_tokens, warned
):
    content = body("short" if warned else LONG, said="word " * 8_000)
    one = planners.planner(window_tokens)
    first, again = [await one.plan(CHAT_COMPLETIONS, planners.TENANT, content) for _ in range(2)]
    lines = [line for line in await recorded(recorder, first) if line["event"] == "system_text_long"]
    size = first.plan.blocks[0].tokens_after
    assert [(line["tokens"], line["log_level"]) for line in lines] == [(size, "warning")] * warned
    assert "system_text_long" not in [line["event"] for line in await recorded(recorder, again)]


async def test_the_wait_for_images_is_not_the_proxys_own_time(monkeypatch):
    planned = replace(await planned_for(body("short")), lookup_seconds=2.0)
    monkeypatch.setattr(time, "perf_counter", lambda: 3.5)
    waited, without = (RequestRecord("req-1", started=0.0, planned=one) for one in (planned, None))
    for record in (waited, without):
        record.received = 1.0
        record.note_sent(1)
        record.complete(4.0)
    assert (waited.own_ms, waited.lookup_ms) == (500.0, 2000.0)
    assert (without.own_ms, without.lookup_ms) == (2500.0, None)


async def test_the_headers_report_sizes_attempts_and_edits_and_none_of_an_original_that_went_up_in_the_end(recorder):
    record = recorder.begin("req-1")
    assert record.headers() == [], "without a plan"
    planned = await planned_for(body(LONG))
    plan = planned.plan
    record.note_plan(planned)
    room = plan.budget.room_tokens
    edits = [(b"x-context-proxy-edits", b"retrieval_tool=1;truncate_tool_output=1")]
    for after, attempts, edited in ((plan.after.tokens, b"1", edits), (plan.before.tokens, b"2", [])):
        tokens = f"before={plan.before.tokens};after={after};room={room}".encode()
        told = [(b"x-context-proxy-tokens", tokens), (b"x-context-proxy-attempts", attempts), *edited]
        assert sorted(record.headers()) == sorted(told)
        record.note_attempt(Cure(AttemptKind.ORIGINAL), planned)


async def test_a_request_that_fails_is_a_warning_with_its_code(recorder, metrics):
    with capture_logs() as log:
        record = recorder.begin("req-1")
        record.note_body(10)
        record.note_error(UpstreamTimeout("silent for 3 s"))
        recorder.finish(record)
    (done,) = log
    assert (done["log_level"], done["outcome"], done["problem"]) == ("warning", "upstream_timeout", "silent for 3 s")
    assert (done["status"], done["sent_bytes"]) == (0, 0)
    text = metrics.exposed().decode()
    assert 'context_proxy_requests_total{outcome="upstream_timeout"} 1.0' in text
    assert "context_proxy_running_requests 0.0" in text


async def test_a_second_send_is_timed_from_its_own_departure_and_the_first_is_the_proxys_own_work():
    planned = await planned_for(body("short"))
    record = RequestRecord("req-1", 0.0)
    record.note_body(10)
    record.note_plan(planned)
    record.note_sent(10)
    own_ms = record.own_ms
    record.note_answer(400)
    record.note_attempt(Cure(AttemptKind.ORIGINAL), planned)
    record.note_sent(10)
    assert record.own_ms == own_ms
    assert (record.status, record.answered) == (0, None), "nothing has come yet"
    record.complete(1.0)
    assert record.first_byte_ms is None


def test_a_record_is_written_in_the_order_in_which_its_fields_are_described():
    record = RequestRecord("r", 0.0)
    record.note_body(3)
    record.model = "m"
    names = [*record.in_order()]
    assert names == [name for name in RequestRecord.__dataclass_fields__ if name in names]
    assert names.index("model") < names.index("body_bytes"), "not in the order in which they were set"
