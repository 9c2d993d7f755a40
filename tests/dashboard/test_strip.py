"""The conversation as a strip, in a real browser: the picture, what is lost, what a turn has cut."""

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.browser import browser
from support.journey import KEY, call, long_text, result, world
from support.upstream import model_server

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
    least = page.value("LEAST_CUT * story.of.turns[0].room_tokens")
    cuts = sum(lost > before + least for before, lost in zip([0, *turns], turns, strict=False))
    assert page.value("document.querySelectorAll('#strip rect.saw').length") == TURNS
    assert page.value("document.querySelectorAll('#strip .dot:not(.key)').length") == TURNS
    assert page.value("document.querySelectorAll('#strip .notch').length") == cuts > 2


def test_what_only_an_estimate_moves_by_is_no_cut(page):
    turn = "({{tokens_before: {}, tokens_after: {}, room_tokens: 9000}})"
    before, less, more = turn.format(100, 50), turn.format(200, 100), turn.format(200, 40)
    assert page.value(f"cutBy([{before}, {less}], 1)") == 0
    assert page.value(f"cutBy([{before}, {more}], 1)") == 110


def test_what_the_model_saw_stays_under_the_line_and_what_the_agent_sent_does_not(page):
    line = page.value("document.querySelector('#strip .window').getBBox().y")
    assert all(
        page.value("[...document.querySelectorAll('#strip rect.saw')].map(one => one.getBBox().y)")[at] >= line - 1
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
    page.until("document.querySelector('#strip .bad-end')")
    assert page.value("document.querySelector('#strip .bad-end').textContent") == "directly: refused at turn 4"
    assert page.value("document.querySelectorAll('#strip .past').length") == 3
    ends = page.value("document.querySelector('#strip .good-end').textContent")
    assert re.fullmatch(r"through the proxy: answered at turn 12, [\d.]+ times the window", ends)


def test_the_address_that_the_demo_prints_leads_to_the_page_of_the_latest_conversation(page, stage):
    opened(page, stage, "#?direct=4")
    page.until("document.querySelector('#strip .bad-end')")
    assert page.value("location.hash") == f"#?conversation={name_of(page)}&direct=4"
    page.value("document.querySelector('#only .link').click()")
    page.until("!document.querySelector('#strip .bad-end') && location.hash === ''")


def large(page, stage):
    """The conversation's own page."""
    opened(page, stage, f"#?conversation={name_of(page)}")
    page.until("document.querySelector('#turn .cutting')")


def test_a_turn_shows_what_it_has_cut_and_the_one_before_it_had_not(page, stage):
    large(page, stage)
    cuts = page.value("sized().map((_, place) => cutBy(sized(), place))")
    number = max(at for at, cut in enumerate(cuts, 1) if cut)
    assert re.fullmatch(rf"Turn {number} cut \d+ messages?", shown(page, "#turn h3"))
    assert re.match(
        r"Messages? \d+(–\d+)?, [\d,]+ tokens left out bash \d+ old messages? left out", shown(page, ".cutting")
    )
    page.value("document.querySelector('#turn-range').value = 1")
    page.value("document.querySelector('#turn-range').dispatchEvent(new Event('change'))")
    page.until("document.querySelector('#turn h3').innerText === 'Turn 1 cut nothing more'")


def test_without_the_key_no_content_is_asked_for_or_shown(page, stage):
    page.requested.clear()
    large(page, stage)
    assert page.value("document.querySelectorAll('#turn pre, #turn .message, #turn [type=search]').length") == 0
    assert not any("/artifacts/" in url for url in page.requested)
    assert "(" not in shown(page, "#story-facts > :nth-child(3)")


def test_with_the_key_what_was_cut_is_read_as_messages_and_searched(page, stage):
    large(page, stage)
    page.value(f"agentKey = ['authorization', 'Bearer {KEY}']; void showTurn()")
    page.until(
        "document.querySelector('#turn .sides .message') && document.querySelector('#turn .sides > :last-child pre')"
    )
    said = page.value("[...document.querySelectorAll('#turn .message')].map(one => one.innerText)")
    assert re.match(r"\d+ assistant\s+bash \{", said[0])
    assert re.match(r"\d+ bash\s+turn-\d+ 0: ", said[1])
    page.value("document.querySelector('#turn [type=search]').value = '0: '")
    page.value("document.querySelector('#turn [type=search]').dispatchEvent(new Event('input'))")
    assert page.value("[...document.querySelectorAll('#turn .message mark')].every(one => one.innerText === '0: ')")
    assert page.value("document.querySelectorAll('#turn .message[hidden]').length") == len(said) // 2
    page.value("document.querySelector('#turn [type=search]').value = ''; find()")
    assert page.value("document.querySelectorAll('#turn .message[hidden], #turn mark').length") == 0


def test_the_path_of_what_was_cut_can_be_copied(page, stage):
    large(page, stage)
    name = page.value("document.querySelector('#turn .artifact a').textContent")
    page.value("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.value("document.querySelector('#turn .artifact .link').click()")
    page.until("document.querySelector('#turn .artifact .link').textContent !== 'Copy path'")
    path = Path(page.value("document.querySelector('#turn .artifact .link').textContent"))
    assert path.name == name
    assert path.is_file()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "tool", "content": "a"}, "a"),
        (
            {"content": None, "tool_calls": [{"function": {"name": "ls", "arguments": '{"path": "b"}'}}]},
            'ls {"path": "b"}',
        ),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "tool_use", "name": "ls", "input": {"b": 1}}]},
            'a\nls {"b":1}',
        ),
        ({"content": [{"type": "tool_result", "content": [{"type": "text", "text": "a"}]}]}, "a"),
        ({"type": "function_call", "name": "ls", "arguments": "{}"}, "ls {}"),
        ({"type": "function_call_output", "output": "a"}, "a"),
        ({"role": "tool", "content": HOSTILE}, HOSTILE),
    ],
)
def test_a_message_of_any_api_is_read_as_text(page, message, text):
    assert page.value(f"textOf({json.dumps(message)})") == text


def test_a_new_turn_is_drawn_when_it_ends(page, stage):
    stage.ask({"model": "own-model", "messages": messages_of(TURNS + 1)}, user_agent="crush/1.0")
    page.until(f"document.querySelectorAll('#strip rect.saw').length === {TURNS + 1}")
    assert shown(page, "#turn-words").startswith(f"Turn {TURNS + 1}: ")


def test_the_page_stays_with_a_conversation_while_others_go_on_and_moves_when_it_has_rested(page):
    name = name_of(page)
    other = '{ decisions: [{ conversation: "other", request_id: "x" }], running: [] }'
    page.requested.clear()
    page.value(f"storyTakes({other})")
    assert not page.requested
    page.value(f"story.seen = 0; storyTakes({other})")
    page.until("story.seen > 0")
    assert any("/conversations?" in url for url in page.requested)
    assert name_of(page) == name, "it is still the latest that the proxy knows"


def test_a_turn_under_way_is_said_and_drawn(page):
    page.value("storyTakes({ decisions: [], running: [{ conversation: story.of.conversation }] })")
    assert shown(page, "#story-who").endswith("· a turn is under way")
    assert page.value("document.querySelectorAll('#strip .now.runs').length") == 1
    page.value("storyTakes({ decisions: [], running: [] })")
    assert page.value("document.querySelectorAll('#strip .now.runs').length") == 0


@pytest.mark.parametrize("width", [300, 1400])
@pytest.mark.parametrize("turns", [0, 1, 5, 300])
def test_a_picture_of_any_length_stays_within_its_width_and_has_a_dot_for_each_turn(chromium, stage, turns, width):
    opened(chromium, stage)
    grown = "tokens_before: 900 * place + 900, tokens_after: Math.min(9000, 900 * place + 900)"
    rest = "room_tokens: 9000, outcome: 'answered'"
    chromium.value(
        f"window.made = pictureOf(Array.from({{ length: {turns} }}, (_, place) => ({{ {grown}, {rest} }})),"
        f"{{ width: {width}, height: 236, direct: 5 }}).picture; document.body.append(made); 0"
    )
    assert chromium.value("made.querySelectorAll('circle.dot:not(.key, .past)').length") == turns
    reach = "[...made.querySelectorAll('path, rect.saw, circle, text')].map(one => one.getBBox())"
    left, right = chromium.value(
        f"[Math.min(...{reach}.map(one => one.x)), Math.max(...{reach}.map(one => one.x + one.width))]"
    )
    assert left >= 0
    assert right <= width + 8, "but for half a number below the last turn"


def test_all_bars_have_one_scale_that_is_linear_up_to_the_budget(chromium, stage):
    opened(chromium, stage)
    places = chromium.value("[0, 0.5, 1, 2, 4, 32, 1000].map(scaled)")
    assert places == pytest.approx([0, 0.25, 0.5, 0.6, 0.7, 1, 1])
