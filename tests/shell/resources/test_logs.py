"""The log as it is written: one line an event, and no trouble of its own."""

import datetime
import errno
import io
import json
import logging
import re

import pytest
import structlog

from proxy.config import LogSettings
from proxy.shell.resources import configure_logging, logger, write_lines_for


@pytest.fixture(autouse=True)
def configuration_is_put_back():
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


class Broken(io.RawIOBase):
    """A file that accepts no bytes, like a pipe without a reader or a full disk."""

    def __init__(self, number):
        self.number = number
        self.tried = 0

    def writable(self):
        return True

    def write(self, _):
        self.tried += 1
        raise OSError(self.number, "no")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_log_that_cannot_be_written_is_lost_and_costs_nothing(number, log_format):
    broken = Broken(number)
    stream = io.TextIOWrapper(io.BufferedWriter(broken), write_through=True)
    configure_logging(LogSettings(format=log_format), stream)
    for _ in range(10_000):  # more than any buffer holds
        logger().info("request_done", status=200)
    assert broken.tried
    broken.write = lambda line: len(line)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_log_whose_stream_is_closed_is_lost_and_costs_nothing(log_format):
    stream = io.TextIOWrapper(io.BytesIO(), write_through=True)
    configure_logging(LogSettings(format=log_format), stream)
    logger().info("request_done", status=200)
    stream.close()
    logger().info("request_done", status=200)


def test_a_line_that_the_terminal_cannot_spell_is_lost_and_costs_nothing():
    written = io.BytesIO()
    configure_logging(LogSettings(format="console"), io.TextIOWrapper(written, "ascii", write_through=True))
    logger().info("request_planned", model="模型")
    logger().info("request_planned", model="m")
    assert written.getvalue().count(b"request_planned") == 1


CUT = {
    "request_id": "req-c2a5",
    "outcome": "answered",
    "status": 200,
    "api": "chat",
    "model": "coder-16k",
    "tokens_before": 72_275,
    "room_tokens": 14_839,
    "edits": {"old_exchange": 22, "old_result": 1},
    "tokens_sent": 13_085,
    "attempts": 1,
    "total_ms": 185.4,
}
FAILED = {"outcome": "upstream_error", "status": 502, "api": "chat", "problem": "no reply", "total_ms": 1_234.0}


@pytest.mark.parametrize(
    ("fields", "encoding", "sentence"),
    [
        (
            CUT,
            "utf-8",
            "req-c2a5 coder-16k chat 200 72,275→13,085 of 14,839 "
            "(1 old tool result cut down, 22 old messages left out) 185 ms",
        ),
        ({**CUT, "attempts": 2, "edits": {}}, "ascii", "200 72,275->13,085 of 14,839 after 2 sends 185 ms"),
        ({**CUT, "tokens_sent": 72_275, "edits": None}, "utf-8", "200 72,275 of 14,839 185 ms"),
        (FAILED, "utf-8", "chat 502 1,234 ms              outcome=upstream_error problem='no reply'"),
    ],
)
def test_a_request_is_a_sentence_at_a_terminal(fields, encoding, sentence):
    written = io.BytesIO()
    configure_logging(LogSettings(format="console"), io.TextIOWrapper(written, encoding, write_through=True))
    logger().info("request_done", **fields)
    plain = re.sub(r"\x1b\[\d*m", "", written.getvalue().decode())
    assert sentence in plain
    assert "conversation" not in plain


@pytest.mark.parametrize(("line", "name"), [({}, "req-1"), ({"request_id": "req-2", "edits": {"a": 1}}, "req-2")])
def test_a_line_names_the_request_of_its_task_or_its_own(line, name):
    written = io.BytesIO()
    configure_logging(LogSettings(format="json"), io.TextIOWrapper(written, write_through=True))
    write_lines_for("req-1")
    logger().warning("request_done", **line)
    write_lines_for("")
    found = json.loads(written.getvalue())
    assert [*found][:4] == ["timestamp", "level", "event", "request_id"]
    assert datetime.datetime.fromisoformat(found.pop("timestamp")).tzinfo
    assert found == {**line, "request_id": name, "event": "request_done", "level": "warning"}


def test_no_line_is_written_below_the_level():
    written = io.BytesIO()
    configure_logging(LogSettings(format="json", level="warning"), io.TextIOWrapper(written, write_through=True))
    logger().info("request_done", status=200)
    assert not written.getvalue()


def test_an_exception_is_on_its_line():
    written = io.BytesIO()
    configure_logging(LogSettings(format="json"), io.TextIOWrapper(written, write_through=True))
    try:
        raise LookupError("gone")
    except LookupError:
        logger().exception("request_failed", request_id="req-1")
    line = json.loads(written.getvalue())
    assert (line["event"], line["level"], line["request_id"]) == ("request_failed", "error", "req-1")
    assert "LookupError: gone" in line["exception"]
    assert "exc_info" not in line


def test_a_traceback_for_people_shows_no_values():
    written = io.BytesIO()
    configure_logging(LogSettings(format="console"), io.TextIOWrapper(written, write_through=True))
    content = "what the user wrote".upper()  # so that it is in no line of the source
    try:
        raise LookupError(len(content))
    except LookupError:
        logger().exception("request_failed", request_id="req-1")
    assert b"LookupError: 19" in written.getvalue()
    assert content.encode() not in written.getvalue()
