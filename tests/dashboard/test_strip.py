"""The conversation as a strip, in a real browser: the picture, what is lost, what a turn has cut."""

import re
import uuid
from typing import Any

import pytest
from support.browser import CHROMIUM, browser
from support.journey import call, long_text, result, world
from support.upstream import model_server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian's: chromium)")
HOSTILE = "<img src=x onerror=\"document.title='pwned'\">"
TURNS = 12


def messages_of(turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Why is the build red?"}]
    for turn in range(turns):
        messages += [call(turn), result(turn, long_text(120 if turn != 8 else 3_000, f"turn-{turn}"))]
    return messages


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A proxy that has served a conversation with a hostile name, which grew over its window."""
    settings = {"defaults": {"context_window": 9_000}, "learning": {"enabled": False}}
    with world(tmp_path_factory.mktemp("strip") / "kept", model_server(8_000), [settings]) as built:
        for turn in range(TURNS):
            request = {"model": "own-model", "messages": messages_of(turn + 1)}
            named = {"x_context_proxy_session": HOSTILE, "user_agent": "crush/1.0"}
            assert built.ask(request, x_request_id=f"turn-{turn}", **named).status_code == 200
        built.logged("request_done", TURNS)
        yield built


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def opened(page, stage, address="", **how):
    """The dashboard at an address, with its strip."""
    page.complaints.clear()
    page.open(f"{stage.proxies[0].removesuffix('/v1')}/?{uuid.uuid4()}{address}", **how)
    page.until("document.readyState === 'complete' && document.querySelector('#strip svg')")
    page.until("document.querySelector('#story-facts')?.innerText.includes('readable')")
    return page


@pytest.fixture
def page(chromium, stage):
    yield opened(chromium, stage)
    assert chromium.complaints == []
    assert chromium.value("document.title") == "context-proxy"


def shown(page, what):
    found: str = page.value(f"document.querySelector('{what}').innerText")
    return found


def name_of(page):
    found: str = page.value("story.of.conversation")
    return found


def test_the_page_begins_with_the_latest_conversation_what_it_lost_and_what_it_saved(page):
    assert shown(page, "#story-title") == HOSTILE
    assert re.fullmatch(r"crush · own-model · began .+ · 12 turns", shown(page, "#story-who"))
    facts = page.value("[...document.querySelectorAll('#story-facts > div')].map(one => one.innerText)")
    assert [fact.split("\n")[0] for fact in facts] == ["Sent by the agent", "Seen by the model", "Lost so far", "Saved"]
    assert re.search(r"times the window of 9,000", facts[0])
    assert re.fullmatch(r"Lost so far\s+\d+ results\s+of bash(, \d+ shortened)?; all readable", facts[2])
    assert re.search(r"\d requests?\s+too long for the window, yet answered; [\d.K]+ tokens saved", facts[3])


def test_each_turn_has_a_dot_and_a_cut_is_a_mark(page):
    turns = page.value("story.of.turns.map(turn => turn.tokens_before - turn.tokens_after)")
    cuts = sum(lost > before for before, lost in zip([0, *turns], turns, strict=False))
    assert page.value("document.querySelectorAll('#strip .saw').length") == TURNS
    assert page.value("document.querySelectorAll('#strip .dot:not([cx=\"5.0\"])').length") == TURNS
    assert page.value("document.querySelectorAll('#strip .notch').length") == cuts > 2


def test_what_the_model_saw_stays_under_the_line_and_what_the_agent_sent_does_not(page):
    line = page.value("document.querySelector('#strip .window').getBBox().y")
    assert all(
        page.value("[...document.querySelectorAll('#strip .saw')].map(one => one.getBBox().y)")[at] >= line - 1
        for at in range(TURNS)
    )
    assert page.value("document.querySelector('#strip .sent-line').getBBox().y") < line - 20


def test_the_keyboard_goes_from_turn_to_turn_and_each_says_what_it_did(page):
    page.value("document.querySelector('#turn-range').focus()")
    assert shown(page, "#turn-words").startswith("Turn 12: ")
    page.press("ArrowDown")
    assert shown(page, "#turn-words").startswith("Turn 11: ")
    assert page.value("document.querySelector('#turn-range').ariaValueText") == shown(page, "#turn-words")


def test_a_click_opens_the_conversation_on_its_own_page_and_another_one_leads_back(page):
    page.value("document.querySelector('#story-open').click()")
    page.until("document.body.classList.contains('one-conversation')")
    assert page.value("location.hash") == f"#?conversation={name_of(page)}"
    assert page.value("getComputedStyle(document.querySelector('#totals')).display") == "none"
    page.value("document.querySelector('#story-open').click()")
    page.until("!document.body.classList.contains('one-conversation')")


def test_an_address_can_say_where_the_same_work_ended_without_the_proxy(page, stage):
    opened(page, stage, f"#?conversation={name_of(page)}&direct=4")
    page.until("document.querySelector('#strip .bad-words')")
    assert page.value("document.querySelector('#strip .bad-words').textContent") == "directly: refused at turn 4"
    assert page.value("document.querySelectorAll('#strip .gone-dot').length") == 3
    ends = page.value("document.querySelector('#strip .good-words').textContent")
    assert re.fullmatch(r"through the proxy: answered at turn 12, [\d.]+ times the window", ends)


def test_a_new_turn_is_drawn_when_it_ends(page, stage):
    stage.ask({"model": "own-model", "messages": messages_of(TURNS + 1)}, user_agent="crush/1.0")
    page.until(f"document.querySelectorAll('#strip .saw').length === {TURNS + 1}")
    assert shown(page, "#turn-words").startswith(f"Turn {TURNS + 1}: ")


def test_all_bars_have_one_scale_that_is_linear_up_to_the_budget(chromium, stage):
    opened(chromium, stage)
    places = chromium.value("[0, 0.5, 1, 2, 4, 32, 1000].map(scaled)")
    assert places == pytest.approx([0, 0.25, 0.5, 0.6, 0.7, 1, 1])
