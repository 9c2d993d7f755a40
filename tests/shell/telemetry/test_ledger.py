"""The database of finished requests: what is found, what is summed up, and that it does not grow."""

import sqlite3
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shell.telemetry import SLOT_SECONDS, Entry, Ledger, Wanted


def entry(name, ended=1000.0, *, trouble=0, blocks=None, **members):
    line = {"request_id": name, "outcome": "answered", "status": 200, "model": "m", "upstream": "u", **members}
    sums = {"requests": 1, "tokens_before": 100, "tokens_sent": 60, "first_byte_ms": 5.0, "waited": 1}
    return Entry(ended, line, blocks, sums, trouble)


def ids(ledger, **wanted):
    return [one["request_id"] for one in ledger.page(Wanted(**wanted))]


@pytest.fixture
def ledger():
    made = Ledger(None, 1_000)
    yield made
    made.close()


def test_pages_follow_one_another_without_gap_or_repetition(ledger):
    ledger.add(entry(str(number)) for number in range(10))
    seen, before = [], None
    while page := ledger.page(Wanted(limit=3, before=before)):
        seen += [one["request_id"] for one in page]
        before = page[-1]["id"]
    assert seen == [str(number) for number in reversed(range(10))]


def test_rows_of_a_clock_that_was_ahead_count_as_the_oldest_once_it_is_right(monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.ledger._TIDY_ROWS", 1)
    ledger = Ledger(None, 6, clock=lambda: 1_000.0)
    ledger.add([entry(f"ahead-{number}", 9_000.0 + number, conversation="old") for number in range(4)])
    ledger.add([entry(f"right-{number}", 1_000.0 + number, conversation="new") for number in range(4)])
    assert ids(ledger) == ["right-3", "right-2", "right-1", "right-0", "ahead-3", "ahead-2"]
    seen, before = [], None
    while page := ledger.page(Wanted(limit=1, before=before)):
        seen += [one["request_id"] for one in page]
        before = page[-1]["id"]
    assert seen == ids(ledger)
    assert [found["conversation"] for found in ledger.conversations(5)] == ["new", "old"]
    assert ledger.slots(0)[0]["requests"] == 4
    ledger.close()


def test_news_is_what_has_come_since_even_if_it_ended_earlier(ledger):
    assert ledger.newest() == 0
    ledger.add([entry("old", 1_000.0)])
    newest = ledger.newest()
    assert ledger.news(newest, 10) == (newest, [])
    ledger.add([entry("late", 900.0), entry("new", 1_001.0), entry("between", 999.0)])
    last, reported = ledger.news(newest, 10)
    assert [one["request_id"] for one in reported] == ["new", "between", "late"]
    assert ledger.news(last, 10) == (last, [])
    assert len(ledger.news(newest, 2)[1]) == 2
    assert ids(ledger) == ["new", "old", "between", "late"]


def test_requests_of_the_same_microsecond_have_ids_one_after_the_other(ledger):
    ledger.add([entry("a", 1_000.0), entry("b", 1_000.0), entry("c", 1_000.000_001)])
    ledger.add([entry("a", 1_000.0), entry("d", 999.0)])
    assert [one["id"] for one in ledger.page(Wanted())] == [
        *(1_000_000_003, 1_000_000_002, 1_000_000_001, 1_000_000_000),
        999_000_000,
    ]


def test_a_search_finds_all_words_anywhere_in_any_case(ledger):
    ledger.add(
        [
            entry("one", model="Qwen3-Coder", edits={"old_exchange": 3}, conversation="abc123"),
            entry("two", outcome="upstream_timeout", status=504, trouble=2, problem="silent for 3 s"),
            entry("three", model="100%_sure"),
        ]
    )
    assert ids(ledger, words="qwen3 OLD_exchange") == ["one"]
    assert ids(ledger, words="504") == ["two"]
    assert ids(ledger, words="silent timeout") == ["two"]
    assert ids(ledger, words="%") == ["three"]
    assert ids(ledger, words="qwen3 504") == []
    assert ids(ledger, changed=True) == ["one"] == ids(ledger, conversation="abc123")
    assert ids(ledger, troubled=True) == ["two"]
    assert ledger.count(Wanted(limit=1)) == 3


def test_what_was_refused_and_what_failed_is_found_by_its_outcome_and_by_its_status(ledger):
    ledger.add(
        [
            entry("fine"),
            entry("key", status=401, outcome="refused"),
            entry("rate", status=200, outcome="refused"),
            entry("old-key", status=401),
            entry("down", status=503, outcome="upstream_error"),
            entry("broke", status=200, outcome="upstream_unreachable"),
            entry("old-down", status=503),
            entry("too-long", status=400, outcome="context_length_exceeded"),
            entry("left", status=0, outcome="client_left"),
        ]
    )
    assert ids(ledger, status="401") == ["old-key", "key"]
    assert ids(ledger, status="4xx") == ["too-long", "old-key", "key"]
    assert ids(ledger, status="refused") == ["old-key", "rate", "key"]
    assert ids(ledger, status="failed") == ["old-down", "broke", "down"]
    assert [one["outcome"] for one in ledger.page(Wanted(status="401"))] == ["refused", "refused"]
    old = ledger.find("old-down")
    assert old["outcome"] == "upstream_error"


@pytest.mark.parametrize("messages", [1, 100], ids=["short", "compressed"])
def test_of_two_requests_with_one_id_the_newer_is_found_with_its_messages(ledger, messages):
    blocks = [{"message": index, "role": "user", "tokens_before": 5} for index in range(messages)]
    ledger.add([entry("x", status=400), entry("x", blocks=blocks), entry("y")])
    found = ledger.find("x")
    assert (found["status"], found["blocks"]) == (200, blocks)
    unchanged = ledger.find("y")
    assert unchanged["blocks"] == []
    assert ledger.find("z") is None


def test_sums_are_kept_for_each_five_minutes_model_and_upstream(ledger):
    ledger.add([entry("a", 10.0), entry("b", 20.0), entry("c", SLOT_SECONDS + 1.0, model="n")])
    ledger.add([entry("d", 30.0)])
    (whole,) = ledger.slots(0)
    assert (whole["requests"], whole["tokens_before"], whole["tokens_sent"]) == (4, 400, 240)
    assert [(one["slot"], one["requests"]) for one in ledger.slots(0, "slot")] == [(0, 3), (1, 1)]
    assert [(one["model"], one["requests"]) for one in ledger.slots(0, "model")] == [("m", 3), ("n", 1)]
    assert [one["model"] for one in ledger.slots(SLOT_SECONDS, "model")] == ["n"]


def test_the_latest_waits_for_an_upstream_are_listed_in_order(ledger):
    ledger.add(entry(str(wait), first_byte_ms=wait) for wait in (900.0, 3.0, 1.0, 2.0))
    ledger.add([entry("elsewhere", upstream="v", first_byte_ms=7.0), entry("never sent")])
    assert ledger.first_bytes("u", 3) == [1.0, 2.0, 3.0]


def test_turns_of_a_conversation_are_grouped_in_their_order(ledger):
    for turn in range(3):
        for name in ("left", "right"):
            ledger.add([entry(f"{name}-{turn}", float(turn), conversation=name, tokens_before=100 * turn)])
    ledger.add([entry("none")])
    newest, older = ledger.conversations(10)
    assert (newest["conversation"], older["conversation"]) == ("right", "left")
    assert (newest["requests"], newest["began"], newest["ended"]) == (3, 0.0, 2.0)
    assert [turn["tokens_before"] for turn in newest["turns"]] == [0, 100, 200]
    assert len(ledger.conversations(1)) == 1


def test_rows_are_bounded_in_number_and_their_sums_outlive_them(ledger):
    ledger.max_rows = 100
    for start in range(0, 1_000, 100):
        ledger.add((entry(str(number), number) for number in range(start, start + 100)), now=1_000.0)
    assert ledger.count(Wanted()) <= 300
    assert ids(ledger, limit=1) == ["999"]
    assert ledger.slots(0)[0]["requests"] == 1_000


def test_rows_are_bounded_in_bytes(ledger, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.ledger.MAX_MEMORY_BYTES", 50_000)
    ledger.add(entry(str(number), problem="x" * 2_000) for number in range(400))
    assert 0 < ledger.count(Wanted()) < 30


def test_the_file_is_bounded_in_bytes_and_its_newest_rows_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.ledger.MAX_BYTES", 1_000_000)
    ledger, path = Ledger(tmp_path / "decisions.db", 100_000), tmp_path / "decisions.db"
    for start in range(0, 4_000, 200):
        ledger.add(entry(str(number), number, problem="x" * 2_000) for number in range(start, start + 200))
    assert path.stat().st_size < 2_500_000  # with what came between two looks
    assert 100 < ledger.count(Wanted()) < 500
    assert ids(ledger, limit=1) == ["3999"]
    ledger.close()


def test_sums_are_bounded_whatever_models_are_called(ledger, monkeypatch):
    monkeypatch.setattr("proxy.shell.telemetry.ledger.MAX_SLOTS", 50)
    for start in range(0, 1_000, 200):
        ledger.add(entry(str(n), ended=n * SLOT_SECONDS, model=f"m{n}") for n in range(start, start + 200))
    assert len(ledger.slots(0, "slot", "model")) <= 250


def test_workers_see_what_others_have_under_way_while_they_live(ledger):
    ledger.add([], "one", b'[{"request_id":"a"}]', 100.0)
    ledger.add([], "two", b'[{"request_id":"b"}]', 100.0)
    assert ledger.running("one", 101.0) == [{"request_id": "b"}]
    assert ledger.running("one", 1_000.0) == []


def test_only_its_user_reads_the_file_and_two_processes_share_it(tmp_path):
    path = tmp_path / "new" / "decisions.db"
    one, other = Ledger(path, 100), Ledger(path, 100)
    one.add([entry("from-one")])
    other.add([entry("from-other")])
    assert ids(one) == ids(other) == ["from-other", "from-one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    one.close()
    other.close()


def test_entries_are_added_all_or_none(ledger):
    with pytest.raises(sqlite3.Error):
        ledger.add([entry("good"), entry("bad", trouble=None)])
    assert ledger.count(Wanted()) == 0


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_any_name_of_a_model_is_kept(name):
    ledger = Ledger(None, 10)
    ledger.add([entry("x", model=name)])
    assert len(ledger.page(Wanted(words=name.strip()))) in (0, 1)
    assert ledger.page(Wanted())[0]["request_id"] == "x"
    ledger.close()
