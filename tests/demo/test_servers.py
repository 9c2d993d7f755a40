from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from proxy.demo import servers
from proxy.demo.model_server import create_model_server
from proxy.demo.servers import CannotStart, HasDefect, impersonal, proxy_in_front_of, raise_defects, serving


def test_a_server_is_gone_when_its_block_is_left() -> None:
    with serving(create_model_server(1_000)) as url:
        assert httpx.get(f"{url}/models", trust_env=False).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models", trust_env=False)


def test_a_server_whose_application_does_not_start_is_said_at_once() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(CannotStart, match="the model server"), serving(broken):
        raise AssertionError("it must not come this far")


def test_a_proxy_that_cannot_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(CannotStart, match=r"^the proxy did not start:\n.*upstream.base_url"),
        proxy_in_front_of("not-a-url", 8_000, tmp_path),
    ):
        raise AssertionError("it must not come this far")


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "planning_failed", "level": "error"}',
        "2026-11-23 [error    ] planning_failed  request_id=1",
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nIndexError: tuple',
    ],
)
def test_a_run_in_which_the_proxy_fails_inside_has_failed(line: str, tmp_path: Path) -> None:
    with pytest.raises(HasDefect, match=line.rpartition("\n")[2][:20].replace("[", r"\[")):
        raise_defects(f'{{"event": "listening"}}\n{line}\n')
    model = create_model_server(8_000)
    with (
        pytest.raises(HasDefect),
        serving(model) as upstream,
        proxy_in_front_of(upstream, 8_000, tmp_path),
        (tmp_path / "proxy.log").open("a") as log,
    ):
        log.write(f"\n{line}\n")


def test_a_traceback_that_a_tool_has_written_is_no_defect() -> None:
    raise_defects('{"event": "edit", "text": "Traceback (most recent call last):\\n planning is hard"}\n')


def test_a_server_is_asked_to_stop_before_it_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        servers._stop(process)
        assert process.returncode == -signal.SIGTERM


def test_a_server_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "STOP_SECONDS", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        servers._stop(process)
        assert process.returncode == -signal.SIGKILL


def test_the_demos_proxy_sees_nothing_of_the_users_settings() -> None:
    personal = dict.fromkeys(("OPENAI_API_KEY", "CONTEXT_PROXY_MODE", "UPSTREAM", "TOOL_OUTPUT_DIR"), "mine")
    assert impersonal({**personal, "PATH": "/bin"}) == {"PATH": "/bin"}
