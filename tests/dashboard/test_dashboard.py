"""The dashboard in a real browser: what is shown, with which keys, and that nothing in a request becomes code."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Send
from support.browser import CHROMIUM, Page, browser
from support.journey import Received, World, call, long_text, result, world

HOSTILE = "<img src=x onerror=\"document.title='pwned'\">"
FOLDER = Path(__file__).resolve().parents[2] / "proxy" / "dashboard"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian's: chromium)")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A proxy that has served a conversation, a refused request and one of somebody hostile."""
    settings = {"defaults": {"context_window": 9_000}, "learning": {"enabled": False}}
    with world(tmp_path_factory.mktemp("stage") / "kept", 8_000, None, [settings]) as built:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Why is the build red?"}]
        for turn in range(12):
            messages += [call(turn), result(turn, long_text(120 if turn != 8 else 3_000, f"turn-{turn}"))]
            assert built.ask({"model": "gpt-oss", "messages": messages}, x_request_id=f"turn-{turn}").status_code == 200
        built.ask({"model": "m", "messages": [{"role": "system", "content": "word " * 20_000}]}, x_request_id="refused")
        called = call(1, HOSTILE)
        hostile = {"model": HOSTILE, "messages": [{"role": HOSTILE, "content": HOSTILE}, called, result(1, "x")]}
        built.ask(hostile, x_request_id="hostile")
        built.logged("request_done", 14)
        yield built


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def root(stage: World) -> str:
    return stage.proxies[0].removesuffix("/v1")


@pytest.fixture
def page(stage: World, chromium: Page) -> Iterator[Page]:
    """The dashboard, with its rows; whatever a test does, nothing is complained of and nobody else is asked."""
    chromium.complaints.clear()
    chromium.requested.clear()
    chromium.open(f"{root(stage)}/?{uuid.uuid4()}")  # another address, so that it is loaded anew
    chromium.until("document.readyState === 'complete' && document.querySelectorAll('#requests .row').length === 14")
    yield chromium
    assert chromium.value("document.title") == "context-proxy"
    assert chromium.complaints == []
    strangers = [url for url in chromium.requested if not url.startswith((root(stage) + "/", "data:image/svg+xml,"))]
    assert strangers == []


def shown(page: Page, what: str) -> str:
    found: str = page.value(f"document.querySelector('{what}').innerText")
    return found


@needs_chromium
def test_the_latest_requests_are_listed_with_what_was_kept_cut_and_left_out(page: Page) -> None:
    assert page.value("document.querySelector('#requests .model').textContent") == HOSTILE
    assert page.value("document.querySelectorAll('#requests .row')[1].innerText").endswith("does not fit")
    label = page.value("document.querySelectorAll('#requests .row')[2].querySelector('[role=img]').ariaLabel")
    assert re.fullmatch(r"[\d,]+ tokens kept, [\d,]+ cut, [\d,]+ left out", label)
    widths = page.value(
        "[...document.querySelectorAll('#requests .fill')].map(one => one.getBoundingClientRect().width)"
    )
    assert len(set(widths)) > 5
    assert shown(page, "#state") == "live"


@needs_chromium
def test_the_totals_are_those_of_the_proxy(page: Page, stage: World) -> None:
    totals = httpx.get(f"{root(stage)}/decisions", trust_env=False).json()["totals"]
    assert shown(page, "#total-requests") == "14" == str(totals["requests"])
    assert shown(page, "#more-saved").endswith("of what came")
    assert shown(page, "#total-prefix").endswith("%")
    assert shown(page, "#total-overflows") == str(totals["overflows_survived"])


@needs_chromium
def test_a_click_opens_the_messages_with_their_reasons(page: Page) -> None:
    page.value("document.querySelectorAll('#requests .row')[2].click()")
    page.until("document.querySelector('#detail .messages li, #detail .messages details')")
    assert "turn-11" in shown(page, "#detail h2")
    assert "messages left out" in shown(page, "#detail .messages")
    assert "tool_messages_" in shown(page, "#detail .messages")
    page.value("document.querySelector('#detail summary').click()")
    page.until("document.querySelector('#detail details[open] li')")
    assert "old_exchange" in shown(page, "#detail details[open] ol")


@needs_chromium
def test_the_keyboard_goes_down_the_list_opens_and_comes_back(page: Page) -> None:
    page.value("document.querySelector('#requests .row').focus()")
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.value("document.activeElement.querySelector('.model').textContent") == "gpt-oss"
    page.press("Enter")
    page.until("!document.querySelector('#detail').hidden")
    assert page.value("document.activeElement.id") == "detail-title"
    page.press("Tab")
    assert page.value("document.activeElement.textContent") == "Close"
    page.press("Escape")
    assert page.value("document.querySelector('#detail').hidden")
    assert page.value("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.press("ArrowUp")
    assert "does not fit" in page.value("document.activeElement.innerText")


@needs_chromium
def test_an_address_can_name_a_request(page: Page, stage: World) -> None:
    page.open(f"{root(stage)}/?{uuid.uuid4()}#turn-3")
    page.until("document.querySelector('#detail-title')")
    assert "turn-3" in shown(page, "#detail-title")


@needs_chromium
def test_an_address_that_names_nothing_shows_the_requests(page: Page, stage: World) -> None:
    page.open(f"{root(stage)}/?{uuid.uuid4()}#100%")
    page.until("document.querySelectorAll('#requests .row').length === 14")


@needs_chromium
def test_names_in_a_request_are_text(page: Page) -> None:
    page.value("document.querySelectorAll('#requests .row')[0].click()")
    page.until("document.querySelector('#detail summary')")
    page.value("document.querySelector('#detail summary').click()")
    page.until("document.querySelector('#detail .messages li')")
    assert HOSTILE in page.value("document.querySelector('#detail-title').textContent")
    assert HOSTILE[:32] in page.value("document.querySelector('#detail .messages').textContent")
    assert page.value("document.querySelectorAll('img, script:not([src])').length") == 0


@needs_chromium
def test_only_some_of_the_requests_can_be_asked_for(page: Page) -> None:
    page.value("document.querySelector('[data-filter=troubled]').click()")
    visible = "[...document.querySelectorAll('#requests li:not([hidden])')]"
    assert page.value(f"{visible}.some(one => one.innerText.includes('does not fit'))")
    assert page.value(f"{visible}.length") < 14
    page.value("document.querySelector('[data-filter=all]').click()")
    assert page.value(f"{visible}.length") == 14


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_sticks_out_at_any_width_and_words_stand_out_from_their_ground(page, stage, width, dark) -> None:
    page.open(f"{root(stage)}/?{uuid.uuid4()}#turn-11", width=width, dark=dark)
    page.until("document.querySelector('#detail .messages li, #detail .messages details')")
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("document.querySelector('#detail').scrollWidth <= document.querySelector('#detail').clientWidth")
    ground = page.value("getComputedStyle(document.querySelector('section')).backgroundColor")
    for words in ("h2", ".row .time", ".good", "#detail dt", ".row .tokens .was"):
        ink = page.value(f"getComputedStyle(document.querySelector('{words}')).color")
        assert contrast(ink, ground) >= 4.5, (words, ink, ground)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, 1.4.3."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@needs_chromium
def test_a_request_under_way_is_shown_until_it_is_over(chromium: Page, tmp_path: Path) -> None:
    over = threading.Event()

    async def hold(received: Received, send: Send) -> bool:
        await asyncio.to_thread(over.wait)
        return False

    with world(tmp_path / "kept", 8_000, hold, [{}]) as slow, ThreadPoolExecutor(1) as other:
        asked = other.submit(slow.ask, {"model": HOSTILE, "messages": [{"role": "user", "content": "hi"}]})
        try:
            chromium.open(root(slow) + "/")
            chromium.until("document.querySelector('#running .row')")
            assert shown(chromium, "#running .model") == HOSTILE
            assert shown(chromium, "#running .outcome") == "under way"
            assert shown(chromium, "#more-requests") == "1 under way"
        finally:
            over.set()
        assert asked.result().status_code == 200
        chromium.until("document.querySelector('#requests .row') && document.querySelector('#running').hidden")
        chromium.open("about:blank")
    assert chromium.value("document.title") != "pwned"


@needs_chromium
def test_a_proxy_that_is_gone_is_said_to_be(chromium: Page, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        short_lived = stack.enter_context(world(tmp_path / "kept", 8_000, None, [{}]))
        chromium.open(root(short_lived) + "/")
        chromium.until("document.querySelector('#state')?.dataset.state === 'live'")
        assert not chromium.value("document.querySelector('#empty').hidden")
        assert shown(chromium, "#base-url") == short_lived.proxies[0]
    chromium.until("document.querySelector('#state').dataset.state === 'lost'")


def test_the_page_may_load_nothing_but_its_own_files(stage: World) -> None:
    answer = httpx.get(root(stage) + "/", trust_env=False)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    for name in re.findall(r'(?:src|href)="(dashboard/[^"]+)"', answer.text):
        found = httpx.get(f"{root(stage)}/{name}", trust_env=False)
        assert (found.status_code, found.headers["x-content-type-options"]) == (200, "nosniff")
        assert found.headers["content-type"].startswith("text/")
    assert not re.search(r"\son\w+=|<script>|<style|style=", answer.text)


def test_the_files_name_no_other_place_and_write_no_markup():
    for path in FOLDER.iterdir():
        if path.suffix in (".js", ".css", ".html"):
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text, path.name
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", text)


def test_nothing_else_of_the_folder_is_served(stage: World) -> None:
    for name in ("__init__.py", "../settings.py", "%2e%2e/settings.py", "index.html/../__init__.py"):
        assert httpx.get(f"{root(stage)}/dashboard/{name}", trust_env=False).status_code == 404
