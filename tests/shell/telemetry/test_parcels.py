"""Decisions packed for other replicas: what arrives is what was sent, and what is no decision arrives nowhere."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.text import jsontext
from proxy.shell.telemetry import parcels
from proxy.shell.telemetry.ledger import Entry, Ledger, Wanted
from proxy.shell.telemetry.parcels import MAX_BYTES, Outbox, packed, unpacked

BLOCK = {"message": 0, "role": "tool", "tool": "bash", "tokens_before": 500, "tokens_after": 90}


def entry(blocks: Any = None, **members: Any) -> Entry:
    line = {"request_id": "r", "ended": "2026-01-01T00:00:00.000+00:00", "outcome": "answered", "status": 200}
    return Entry(1_000.0, {**line, **members}, blocks, {"requests": 1, "edited": True, "first_byte_ms": 2.5}, 1)


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_what_arrives_is_what_was_sent_whatever_the_model_is_called(name: str) -> None:
    sent = entry([BLOCK], model=name, edits={"old_exchange": 2}, tokens_before=7)
    parcel = packed(sent, 12)
    assert parcel is not None
    assert unpacked(parcel) == sent._replace(id=12)


def test_a_long_request_goes_without_its_messages() -> None:
    made = random.Random(5)
    blocks = [{**BLOCK, "artifacts": [made.randbytes(24).hex()]} for _ in range(2_000)]
    parcel = packed(entry(blocks), 1)
    assert parcel is not None
    assert len(parcel) < MAX_BYTES
    found = unpacked(parcel)
    assert found is not None
    assert found.blocks is None
    assert packed(entry(problem=made.randbytes(MAX_BYTES).hex()), 1) is None


def changed(**members: Any) -> bytes:
    """A parcel with something else in it."""
    whole: dict[str, Any] = {**entry()._asdict(), "id": 1, "sums": {"requests": 1}}
    summary = {**whole["summary"], **members.pop("summary", {})}
    return zlib.compress(jsontext.dump({**whole, "summary": summary, **members}))


def test_what_others_pack_is_unpacked() -> None:
    assert unpacked(changed()) == entry()._replace(id=1, sums={"requests": 1})


@pytest.mark.parametrize(
    "parcel",
    [
        b"",
        b"no parcel",
        zlib.compress(b"no JSON"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b" " * (parcels.MAX_UNPACKED_BYTES + 1) + b"{}"),
        changed(id=-1),
        changed(id=2**60),
        changed(ended=1e300),
        changed(ended="now"),
        changed(trouble=9),
        changed(sums={"requests": -1}),
        changed(sums={"requests": 10**400}),
        changed(blocks=[1]),
        changed(summary={"request_id": 5}),
        changed(summary={"upstream": ["u"]}),
        changed(summary={"edits": {"a": "b"}}),
        changed(summary={"tokens_before": 2**70}),
        changed(summary={"conversation": None}),
    ],
)
def test_what_could_not_be_a_row_is_nothing(parcel: bytes) -> None:
    assert unpacked(parcel) is None


@given(st.dictionaries(st.sampled_from(["model", "outcome", "status", "problem", "warning"]), st.text()))
def test_whatever_is_unpacked_can_be_kept(summary: dict[str, str]) -> None:
    found = unpacked(changed(summary=summary))
    assert found is not None
    ledger = Ledger(None, 10)
    ledger.take([found], "0-0", "1-0", 0.0)
    assert ledger.count(Wanted()) == 1
    ledger.close()


def test_what_waits_is_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "MAX_WAITING", 5)
    monkeypatch.setattr(parcels, "MAX_WAITING_BYTES", 100)
    outbox = Outbox()
    outbox.put(b"%d" % number for number in range(9))
    assert (len(outbox), outbox.take(2)) == (5, [b"4", b"5"])
    outbox.give_back([b"4", b"5"])
    assert outbox.take(1) == [b"4"]
    outbox.put([b"x" * 98])
    assert outbox.take(9) == [b"7", b"8", b"x" * 98]
    outbox.put([b"y" * 101])
    assert len(outbox) == 0
    outbox.give_back([b"%d" % number for number in range(9)])
    assert outbox.take(9) == [b"%d" % number for number in range(4, 9)]
