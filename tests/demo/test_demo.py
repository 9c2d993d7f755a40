"""The demo as it is started: servers, the agent, the screen, the exit status."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from proxy.demo import add_flags, contest, run
from proxy.demo.incident import make_incident
from proxy.demo.servers import CannotStart

Front = Callable[[str, int, Path, int], AbstractContextManager[str]]


def options(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(flags)


START = """
import argparse, sys
from proxy.demo import add_flags, run
parser = argparse.ArgumentParser()
add_flags(parser)
sys.exit(run(parser.parse_args()))
"""


def test_a_demo_whose_both_runs_are_held_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fake_front: Front
) -> None:
    monkeypatch.setattr(contest, "proxy_in_front_of", fake_front)
    monkeypatch.setenv("COLUMNS", "80")
    before = signal.getsignal(signal.SIGTERM)
    assert run(options("--turns", "10", "--window", "20000")) == 0
    shown = capsys.readouterr().out
    assert "Directly the agent died at turn 6 of 10; through the proxy it found the answer in" in " ".join(
        shown.split()
    )
    assert str(make_incident(6).answer) in " ".join(shown.split())
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_demo_whose_proxy_dies_too_says_so_and_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contest, "proxy_in_front_of", lambda upstream, *_: contextlib.nullcontext(upstream))
    assert run(options("--turns", "10")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Directly the agent died at turn 5 of 10; through the proxy it died at turn 5 of 10." in shown


def test_the_demo_is_held_with_the_real_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options("--turns", "24")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Directly the agent died at turn 6 of 24; through the proxy it found the answer in" in shown


def test_a_demo_that_is_told_to_stop_takes_its_proxy_along() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-c", START, "--turns", "44", "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert any(line.startswith("direct turn  1") for line in demo.stdout)
        demo.terminate()
        assert demo.wait(20) == 128 + signal.SIGTERM
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)


def test_a_demo_that_cannot_be_held_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> AbstractContextManager[str]:
        raise CannotStart("the proxy did not start: no room")

    monkeypatch.setattr(contest, "proxy_in_front_of", broken)
    assert run(options("--turns", "6")) == 1
    assert capsys.readouterr().err == "the demo could not be held: the proxy did not start: no room\n"


def test_the_demo_needs_nothing_but_what_the_proxy_needs() -> None:
    """A plain install has no openai-python."""
    code = "import sys; sys.modules['openai'] = None; import proxy.demo.contest"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "flags", [("--turns", "5"), ("--turns", "45"), ("--window", "100"), ("--flavour", "x"), ("--port", "0" * 4000)]
)
def test_flags_out_of_range_are_refused(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(*flags)
    assert flags[0] in capsys.readouterr().err


class Terminal(io.StringIO):
    """Somebody who watches, and types what is given."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("flags", "is_open"), [((), True), (("--once",), False)])
def test_who_watches_is_told_where_the_dashboard_is_while_it_is_open(
    flags: tuple[str, ...], is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Typing(Terminal):
        def readline(self, *_: object) -> str:  # type: ignore[override] # of a text stream
            address = re.search(r"http://127\.0\.0\.1:\d+/(?= )", output.getvalue())
            assert address is not None
            seen.append(httpx.get(address[0], trust_env=False).status_code)
            if len(seen) == 2:
                raise KeyboardInterrupt
            return "\n"

    output = Terminal()
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stdin", Typing())
    assert run(options("--turns", "6", *flags)) == 0
    assert seen == ([200, 200] if is_open else [])
    assert ("Ctrl-C ends it" in output.getvalue()) == is_open


@pytest.mark.parametrize("port", ["x", "-1", "65536", "8e3", "٣"])
def test_a_wrong_number_is_told_with_the_allowed_ones(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--port", port)
    assert f"must be a whole number from 0 to 65535, found {port!a}" in capsys.readouterr().err
