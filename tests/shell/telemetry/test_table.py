"""The database of finished requests: what is found, what is summed up, and that it does not grow."""

import contextlib
import sqlite3
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.conversation import MessageReport
from proxy.shell.telemetry import RequestOutcome, RequestRecord, Sums, Table, storable


def entry(name, ended=1000.0, *, reports=(), **fields):
    described = {"model": "m", "upstream": "u", "tokens_before": 100, "tokens_sent": 60, "status": 200, **fields}
    record = RequestRecord.of({"request_id": name, "outcome": "answered", **described})
    record.finished_at, record.reports = ended, reports
    return record


def ids(table, **wanted):
    return [one.request_id for one in table.page(wanted)]


@pytest.fixture
def table():
    made = Table(None, 1_000)
    yield made
    made.close()


def test_pages_follow_one_another_without_gap_or_repetition(table):
    table.add(entry(str(number)) for number in range(10))
    seen, before = [], None
    while page := table.page({"limit": 3, "before": before}):
        seen += [one.request_id for one in page]
        before = page[-1].id
    assert seen == [str(number) for number in reversed(range(10))]


def test_rows_of_a_clock_that_was_ahead_stay_where_they_were_written_and_no_later_sum_has_them(table):
    table.add([entry("ahead", 9_000.0), entry("right", 1_000.0)])
    table.add([entry("newest", 1_001.0)])
    assert ids(table) == ["newest", "right", "ahead"]
    ((sums,),) = table.sums(0, 1_001.0)
    assert sums.requests == 2


def test_news_is_what_was_written_since(table):
    table.add([entry("old", 1_000.0)])
    newest = table.page({})[0].id
    assert ids(table, after=newest) == []
    table.add([entry("late", 900.0), entry("new", 1_001.0)])
    assert ids(table, after=newest) == ["new", "late"] == ids(table, limit=2)
    assert ids(table, after=newest, limit=1) == ["new"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"words": "qwen3 OLD_exchange"}, ["one"]),
        ({"words": "504"}, ["two"]),
        ({"words": "silent timeout"}, ["two"]),
        ({"words": "%"}, ["three"]),
        ({"words": "qwen3 504"}, []),
        ({"changed": True}, ["one"]),
        ({"conversation": "abc123"}, ["one"]),
        ({"status": "401"}, ["key"]),
        ({"status": "4xx"}, ["too-long", "key"]),
        ({"status": "refused"}, ["rate", "key"]),
        ({"status": "failed"}, ["broke", "two"]),
        ({"limit": 1}, ["left"]),
    ],
)
def test_a_search_finds_all_words_in_any_case_and_an_outcome_by_its_name_status_or_class(table, wanted, found):
    table.add(
        [
            entry("one", model="Qwen3-Coder", edits={"old_exchange": 3}, conversation="abc123"),
            entry("two", outcome="upstream_timeout", status=504, problem="silent for 3 s"),
            entry("three", model="100%_sure"),
            entry("key", status=401, outcome="refused"),
            entry("rate", status=200, outcome="refused"),
            entry("broke", status=200, outcome="upstream_unreachable"),
            entry("too-long", status=400, outcome="context_length_exceeded"),
            entry("left", status=0, outcome="client_left"),
        ]
    )
    assert ids(table, **wanted) == found
    assert table.count(wanted) == (8 if wanted == {"limit": 1} else len(found))


def test_what_was_cured_warned_about_or_guessed_is_found_by_itself(table):
    table.add(
        [
            entry("cured", attempts=2, upstream="a:1"),
            entry("lost", attempts=2, outcome="refused", status=400, upstream="a:1"),
            entry("warned", warning="window_too_small", upstream="b:1"),
            entry("guessed", window_is_guessed=True, tokens_before=5, window_tokens=9, upstream=""),
        ]
    )
    assert ids(table, troubled=True) == ["lost"]
    assert ids(table, cured=True) == ["cured"]
    assert ids(table, warned=True) == ["warned"]
    assert ids(table, guessed=True) == ["guessed"]
    assert ids(table, upstream="a:1") == ["lost", "cured"]
    table.add([entry("unread", model="")])
    assert ids(table, model="-") == ["unread"]
    assert ids(table, upstream="-") == ["guessed"], "it was sent nowhere"
    ((sums,),) = table.sums(0, 2_000.0)
    assert (sums.cured, sums.unanswered) == (1, 1)


@pytest.mark.parametrize("outcome", RequestOutcome)
def test_an_outcome_is_a_fault_or_not_and_all_but_one_are_no_answer(table, outcome):
    table.add([entry("x", outcome=outcome)])
    ((sums,),) = table.sums(0, 2_000.0)
    faults = ("upstream_error", "upstream_unreachable", "upstream_timeout", "server_stopping", "proxy_error")
    assert sums.unanswered == (outcome != "answered") == len(ids(table, troubled=True))
    assert ids(table, status="failed") == (["x"] if outcome in faults else [])
    assert ids(table, status=str(outcome)) == ["x"]


def test_of_two_requests_with_one_id_the_newer_is_found_with_its_messages(table):
    table.add([entry("x", status=400), entry("x", reports=[MessageReport("user", "", 5, 5)] * 3), entry("y")])
    record, found = table.find("x")
    assert (record.status, [(block.message, block.tokens_before) for block in found]) == (200, [(0, 5), (1, 5), (2, 5)])
    _, found = table.find("y")
    assert found == []
    assert table.find("z") is None


def test_sums_are_grouped_by_time_model_and_upstream(table):
    table.add([entry("a", 10.0), entry("b", 20.0), entry("c", 301.0, model="n")])
    table.add([entry("d", 30.0)])
    ((whole,),) = table.sums(0, 1_000)
    assert (whole.requests, whole.tokens_before, whole.tokens_sent) == (4, 400, 240)
    by_time = table.sums(0, 1_000, "CAST(ended / 300 AS INTEGER)")
    assert [(at, sums.requests) for at, sums in by_time] == [(0, 3), (1, 1)]
    by_model = table.sums(0, 1_000, "model", "upstream")
    assert [(model, upstream, sums.requests) for model, upstream, sums in by_model] == [("m", "u", 3), ("n", "u", 1)]
    assert [model for model, _ in table.sums(300, 1_000, "model")] == ["n"]


def test_tokens_of_what_was_never_sent_are_not_summed_up(table):
    table.add([entry("sent"), entry("refused before", tokens_sent=None)])
    ((sums,),) = table.sums(0, 2_000)
    assert (sums.tokens_before, sums.tokens_sent) == (100, 60)


def test_a_table_without_rows_has_sums_of_nothing(table):
    assert table.sums(0, 1_000) == [(Sums.of(()),)]


def test_the_latest_turns_of_a_conversation_are_grouped_in_their_order(table):
    for turn in range(3):
        for name in ("left", "right"):
            table.add([entry(f"{name}-{turn}", float(turn), conversation=name, tokens_before=100 * turn)])
    table.add([entry("none")])
    newest, older = table.conversations(10)
    assert (newest.conversation, older.conversation) == ("right", "left")
    assert (newest.sums.requests, newest.began, newest.ended) == (3, 0.0, 2.0)
    assert [turn.tokens_before for turn in newest.turns] == [0, 100, 200]
    (alone,) = table.conversations(1, turns=2)
    assert (alone.sums.requests, [turn.tokens_before for turn in alone.turns]) == (3, [100, 200])
    (named,) = table.conversations(1, name="left")
    assert (named.conversation, named.sums.requests) == ("left", 3)
    assert table.conversations(1, name="other") == []


def test_a_conversation_has_what_it_saved_and_turns_the_name_of_their_session(table):
    table.add([entry("a", conversation="c", fitted=True, tokens_saved=30)])
    table.add([entry("b", conversation="c", session="Why?", tokens_saved=12, window_tokens=900)])
    (found,) = table.conversations(10)
    assert (found.sums.fitted, found.sums.tokens_saved) == (1, 42)
    assert [(turn.session, turn.window_tokens) for turn in found.turns] == [("", None), ("Why?", 900)]


def test_rows_are_bounded_in_number():
    with contextlib.closing(Table(None, 100)) as table:
        for start in range(0, 1_000, 100):
            table.add(entry(str(number), number) for number in range(start, start + 100))
        assert table.count({}) == 100
        assert ids(table, limit=1) == ["999"]


@pytest.mark.parametrize(
    ("limit", "most_bytes", "rows", "least", "most"),
    [("MAX_MEMORY_BYTES", 50_000, 400, 0, 30), ("MAX_BYTES", 1_000_000, 4_000, 100, 500)],
)
def test_rows_are_bounded_in_bytes_and_the_newest_stay(limit, most_bytes, rows, least, most, tmp_path, monkeypatch):
    monkeypatch.setattr(f"proxy.shell.telemetry.table.{limit}", most_bytes)
    path = tmp_path / "decisions.db" if limit == "MAX_BYTES" else None
    with contextlib.closing(Table(path, 100_000)) as table:
        for start in range(0, rows, 200):
            table.add(entry(str(number), number, problem="x" * 2_000) for number in range(start, start + 200))
        assert least < table.count({}) < most
        assert ids(table, limit=1) == [str(rows - 1)]
    assert path is None or path.stat().st_size < 2.5 * most_bytes  # with what came between two looks


def test_workers_see_what_others_have_under_way_while_they_live(table):
    table.note_running("one", [RequestRecord("a", 0.0)], 100.0)
    table.note_running("two", [RequestRecord("b", 0.0)], 100.0)
    assert [one.request_id for one in table.running("one", 101.0)] == ["b"]
    assert table.running("one", 1_000.0) == []


def test_only_its_user_reads_the_file_and_two_processes_share_it(tmp_path):
    path = tmp_path / "new" / "decisions.db"
    one, other = Table(path, 100), Table(path, 100)
    one.add([entry("from-one")])
    other.add([entry("from-other")])
    assert ids(one) == ids(other) == ["from-other", "from-one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    one.close()
    other.close()


def test_entries_are_added_all_or_none(table, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.table._DELETE_OLD", "no SQL")
    with pytest.raises(sqlite3.Error):
        table.add([entry("good"), entry("bad")])
    assert table.count({}) == 0


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=20))
def test_anything_can_be_searched_for(name):
    table = Table(None, 10)
    table.add([entry("x", problem=storable(name))])
    assert len(ids(table, words=name.strip())) in (0, 1)
    assert ids(table, model=name) == []
    assert ids(table) == ["x"]
    table.close()
