"""`make pictures`: of the demo for README, and of the dashboard with three agents, both in docs/.

Rule: everything shown is made up but the proxy and its page; the agents' tools read the logs of the demo's incident.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from proxy.app import create_app
from proxy.commands.demo import picture
from proxy.config import Settings
from proxy.demo import Brief, Incident, Toolbox, hold_contest, make_incident
from support.browser import CHROMIUM, Page, browser
from support.serving import serving
from support.upstream import Answer, Sent, listening, model_server, words

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
WIDE, PHONE, STORY = (1440, 900), (390, 844), (1040, 900)
KEY: Final = "demo"
TIMEOUT_SECONDS: Final = 60
WINDOWS: Final = {"claude-sonnet-4-5": 200_000, "gpt-4o-mini": 128_000, "qwen2.5-coder:14b": 64_000}


@dataclass(frozen=True)
class Agent:
    """An agent that reads one log after another."""

    name: str
    model: str
    turns: int


AGENTS: Final = (
    Agent("claude-cli/2.1", "claude-sonnet-4-5", 60),
    Agent("crush/0.9", "gpt-4o-mini", 24),
    Agent("codex/0.169", "qwen2.5-coder:14b", 40),
)
IN_THE_PICTURE: Final = AGENTS[-1].model


DOWN: Final = "glm-4.6"
"""A model whose server fails."""


def busy(sent: Sent) -> Answer | None:
    """Refuse for a rate, sometimes, and fail for one model."""
    if sent.json["model"] == DOWN:
        return sent.face.error("bad gateway", 502)
    return sent.face.error("Rate limit reached", 429, code="rate_limit_exceeded") if sent.number % 40 == 39 else None


def requests_of(agent: Agent, incident: Incident, folder: Path) -> Iterator[dict[str, Any]]:
    """The agent's requests, each with one exchange more."""
    toolbox, logs = Toolbox(incident, folder), sorted(incident.files)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You find out why a request failed. Read the logs of each service."},
        {"role": "user", "content": f"{incident.task} ({agent.model})"},
    ]
    for turn in range(agent.turns):
        yield {"model": agent.model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        arguments = json.dumps({"path": logs[turn % len(logs)]})
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        result = toolbox.run("read_file", arguments)
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def work(agent: Agent, url: str, folder: Path) -> None:
    """Send all requests of an agent through the proxy."""
    headers = {"authorization": f"Bearer {KEY}", "user-agent": agent.name}
    with httpx.Client(headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        for request in requests_of(agent, make_incident(12), folder):
            client.post(f"{url}/chat/completions", json=request)


def fail(url: str) -> None:
    """An agent whose model is down asks again and again."""
    headers = {"authorization": f"Bearer {KEY}", "user-agent": "crush/0.9"}
    with httpx.Client(headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        for _ in range(14):
            client.post(
                f"{url}/chat/completions", json={"model": DOWN, "messages": [{"role": "user", "content": "hi"}]}
            )


def take_trouble(page: Page, root: str) -> None:
    """What is wrong, and the requests that show it, one click away."""
    page.open("about:blank", width=WIDE[0], height=WIDE[1])
    page.open(root, width=WIDE[0], height=WIDE[1])
    page.until("document.querySelector('#troubles .bad a')")
    page.screenshot(DOCS / "dashboard-trouble.png")


def take(page: Page, root: str) -> None:
    """All pictures."""
    page.open(root, width=WIDE[0], height=WIDE[1])
    page.until("document.querySelectorAll('#requests .row').length > 20")
    page.until("document.querySelector('#total-requests').textContent > '0'")
    page.until("document.querySelector('#story-facts').innerText.includes('readable')")
    page.screenshot(DOCS / "dashboard.png")
    page.value("document.querySelector('#story-open').click()")
    page.until("document.querySelector('#turn .artifact summary')")
    page.value("document.querySelector('#turn .artifact summary').click()")
    page.until("document.querySelector('#turn .key input')")
    page.value(f"document.querySelector('#turn .key input').value = '{KEY}'")
    page.value("document.querySelector('#turn .key').requestSubmit()")
    page.until("document.querySelector('#turn .sides > :last-child pre') && document.querySelector('#turn .message')")
    page.value("document.querySelector('#story').scrollIntoView()")
    page.screenshot(DOCS / "dashboard-request.png")
    page.value("document.querySelector('[data-view=conversations]').click()")
    page.until("document.querySelectorAll('#view-conversations li button').length > 2")
    page.value("scrollTo(0, 0)")
    page.screenshot(DOCS / "dashboard-conversations.png")
    page.open("about:blank", width=PHONE[0], height=PHONE[1])
    page.open(root, width=PHONE[0], height=PHONE[1])
    page.until("document.querySelectorAll('#requests .row').length > 20")
    page.screenshot(DOCS / "dashboard-phone.png")


def take_story(page: Page) -> None:
    """The demo, held as `make demo` holds it: both runs in one picture."""
    with hold_contest(Brief(16_000, 30, 1, 0), lambda *_: None) as contest:
        page.open("about:blank", width=STORY[0], height=STORY[1])
        page.open(picture(contest), width=STORY[0], height=STORY[1])
        page.until("document.querySelector('#strip .bad-end')")
        page.until("document.querySelector('#story-facts')?.innerText.includes('readable')")
        for unseen in ("#story-open", "#turn-words", "#turn"):
            page.value(f"document.querySelector('{unseen}').hidden = true")
        page.value("document.querySelector('#strip .pointed').remove()")
        page.screenshot(DOCS / "story.png", "#story")


def main() -> int:
    """Exit status: 0 all pictures are taken, 2 no Chromium."""
    if CHROMIUM is None:
        print("no Chromium is installed; on Debian: apt-get install chromium", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="context-proxy-pictures-"))
    model = model_server(max(WINDOWS.values()))
    model.rules, model.says = [busy, *model.rules], words("I read on.")
    try:
        with listening(model) as upstream:
            models = [{"match": name, "context_window": tokens} for name, tokens in WINDOWS.items()]
            given = {"upstream": {"base_url": upstream}, "data_dir": folder / "data", "models": models}
            with serving(create_app(Settings(**given))) as url:
                with ThreadPoolExecutor(len(AGENTS)) as pool:
                    for done in [pool.submit(work, agent, url, folder) for agent in AGENTS]:
                        done.result()
                with browser(folder / "chromium") as page:
                    take(page, url.removesuffix("v1"))
                    fail(url)
                    take_trouble(page, url.removesuffix("v1"))
                    take_story(page)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
