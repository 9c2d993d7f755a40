"""The `demo` command: servers, the agent, the screen, the exit status."""

import contextlib
import io
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from support.demo_front import fake_front
from support.waiting import PATIENCE_SECONDS

from proxy.__main__ import _parser
from proxy.commands.demo import line, picture, run, show, verdict
from proxy.demo import Brief, CannotStart, Contest, Run, Turn, make_incident
from tools.ports import held_port


def options(*flags):
    return _parser().parse_args(["demo", *flags])


START = "import sys; from proxy.__main__ import main; sys.exit(main(['demo', *sys.argv[1:]]))"


@pytest.fixture(autouse=True)
def as_who_watches_sees_it(counted_as_gpt_4o):
    """The demo counts here as it does everywhere."""


def test_a_demo_whose_both_runs_are_held_ends_with_0(monkeypatch, capsys):
    monkeypatch.setattr("proxy.demo.agent.proxy_in_front_of", fake_front)
    monkeypatch.setenv("COLUMNS", "80")
    before = signal.getsignal(signal.SIGTERM)
    assert run(options("--turns", "10", "--window", "20000")) == 0
    shown = capsys.readouterr().out
    assert "Directly the agent died at turn 6 of 10; through the proxy it found the answer in" in " ".join(
        shown.split()
    )
    assert str(make_incident(6).answer) in " ".join(shown.split())
    assert "\x1b" not in shown
    assert max(len(line) for line in shown.splitlines() if "run claude" not in line) <= 80
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_demo_whose_proxy_dies_too_says_so_and_ends_with_0(monkeypatch, capsys):
    monkeypatch.setattr("proxy.demo.agent.proxy_in_front_of", lambda upstream, *_: contextlib.nullcontext(upstream))
    assert run(options("--turns", "10")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Directly the agent died at turn 5 of 10; through the proxy it died at turn 5 of 10." in shown


def test_the_demo_is_held_with_the_real_proxy(capsys):
    assert run(options("--turns", "24")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Directly the agent died at turn 6 of 24; through the proxy it found the answer in" in shown


def test_a_demo_that_is_stopped_stops_its_proxy():
    with held_port() as port:
        command = [sys.executable, "-c", START, "--turns", "44", "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
            assert demo.stdout is not None
            assert any(line.startswith("direct turn  1") for line in demo.stdout)
            demo.terminate()
            assert demo.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, timeout=PATIENCE_SECONDS)


def test_a_demo_that_cannot_be_held_ends_with_1(monkeypatch, capsys):
    broken = CannotStart("the proxy did not start: no room")
    monkeypatch.setattr("proxy.demo.agent.proxy_in_front_of", Mock(side_effect=broken))
    assert run(options("--turns", "6")) == 1
    assert capsys.readouterr().err == "the demo could not start: the proxy did not start: no room\n"


def test_the_demo_needs_nothing_but_what_the_proxy_needs():
    """A plain install has no openai-python."""
    code = "import sys; sys.modules['openai'] = None; import proxy.commands.demo"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("flag", "given", "allowed"),
    [
        ("--turns", "5", "from 6 to 44"),
        ("--turns", "45", "from 6 to 44"),
        ("--window", "100", "from 4000 to 200000"),
        *(("--port", given, "from 0 to 65535") for given in ("x", "-1", "65536", "8e3", "٣", "0" * 4000)),
    ],
)
def test_a_wrong_number_is_reported_with_the_allowed_range(flag, given, allowed, capsys):
    with pytest.raises(SystemExit):
        options(flag, given)
    shown = capsys.readouterr().err
    assert flag in shown
    assert f"must be a whole number {allowed}, found {given[:20]!a}" in shown


class Terminal(io.StringIO):
    """Somebody who watches, and types what is given."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("flags", "is_open"), [((), True), (("--once",), False)])
def test_the_address_of_the_dashboard_is_shown_while_it_is_open(flags, is_open, monkeypatch):
    seen: list[int] = []

    class Typing(Terminal):
        def readline(self, *_):
            address = re.search(r"http://127\.0\.0\.1:\d+/(?=(#\?direct=\d+)?\n)", output.getvalue())
            seen.append(httpx.get(address[0], trust_env=False, timeout=PATIENCE_SECONDS).status_code)
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


URL = "http://127.0.0.1:8788/v1"
DIED = Turn(
    2, (), 17_000, 0, refusal="400 context_length_exceeded: This model's maximum context length is 16000 tokens."
)
READ = Turn(1, ("list_files", "read_file logs/a-service-with-a-very-long-name-indeed.log"), 9_000, 9_000)
CUT = Turn(2, ("read_file logs/cart.log",), 17_000, 12_000, attempts=2)
TIMES = "a conversation 63.6 times the window"
WRONG = Turn(2, (), 9_500, 9_500, answer="After 1 services: wrong")
DONE = Turn(3, (), 1_017_500, 12_500, answer="After 1 services: right")


def held(direct, proxied):
    return Contest(Brief(16_000, 3, 1, 0), Run(direct, "right"), Run(proxied, "right"), URL)


def test_the_picture_of_both_runs_says_where_the_direct_one_was_refused():
    assert picture(held((READ, DIED), (READ, CUT, DONE))) == "http://127.0.0.1:8788/#?direct=2"
    assert picture(held((READ, DONE), (READ, DONE))) == "http://127.0.0.1:8788/"


def test_each_turn_is_a_line_of_at_most_80_columns():
    assert line("proxy", CUT) == ("proxy  turn  2  read_file cart.log       sent  17,000, model saw  12,000 (twice)")
    assert [re.sub(" +", " ", line("direct", turn)) for turn in (DIED, DONE)] == [
        "direct turn 2 refused sent 17,000",
        "direct turn 3 answer sent 1,017,500, model saw 12,500",
    ]


@pytest.mark.parametrize(
    ("proxied", "ending"),
    [
        ((READ, CUT, DONE), f"found the answer in 3 turns, with {TIMES} (1,017,500 of 16,000 tokens)."),
        ((READ, DIED), "died at turn 2 of 3."),
        ((READ, CUT, CUT, DIED), "died at turn 4."),
        ((READ, WRONG), "ended after 2 turns without the right answer."),
        ((READ, Turn(2, ("ls",), 9_500, 9_500)), "was still searching after 2 turns."),
    ],
)
def test_the_verdict_is_true(proxied, ending):
    said = verdict(held((READ, DIED), proxied))
    assert said == f"Directly the agent died at turn 2 of 3; through the proxy it {ending}"


@pytest.mark.parametrize(
    ("called", "on_path", "shown"),
    [
        ("{here}/.demo/bin/context-proxy", False, ".demo/bin/context-proxy run"),
        ("{here}/.demo/bin/context-proxy", True, "context-proxy run"),
        ("/elsewhere/bin/context-proxy", False, "/elsewhere/bin/context-proxy run"),
        ("{here}/proxy/__main__.py", False, f"{sys.executable} -m proxy run"),
    ],
)
def test_the_next_command_works_as_it_is_printed(called, on_path, shown, tmp_path, monkeypatch, capsys):
    file = Path(called.format(here=tmp_path))
    if file.is_relative_to(tmp_path):
        file.parent.mkdir(parents=True)
        file.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(file.parent) if on_path else "/nowhere")
    monkeypatch.setattr(sys, "argv", [str(file), "demo"])
    show(held((READ, DIED), (READ, CUT, DONE)))
    assert f"  {shown} claude\n" in capsys.readouterr().out
