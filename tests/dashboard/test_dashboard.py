"""The dashboard in a real browser: what is shown, with which keys, and that nothing in a request becomes code."""

import contextlib
import csv
import io
import re
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.browser import browser
from support.journey import KEY, call, long_text, result, world
from support.upstream import model_server
from support.waiting import PATIENCE_SECONDS

from proxy import __version__
from proxy.commands.agents import AGENTS as AGENTS_OF_RUN
from proxy.core.conversation import Reason

HOSTILE = "<img src=x onerror=\"document.title='pwned'\">"
FOLDER = Path(__file__).resolve().parents[2] / "proxy" / "dashboard"


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A proxy that has served a conversation, a refused request and a hostile one."""
    settings = {"defaults": {"context_window": 9_000}, "learning": {"enabled": False}}
    with world(tmp_path_factory.mktemp("stage") / "kept", model_server(8_000), [settings]) as built:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Why is the build red?"}]
        for turn in range(12):
            messages += [call(turn), result(turn, long_text(120 if turn != 8 else 3_000, f"turn-{turn}"))]
            assert (
                built.ask({"model": "own-model", "messages": messages}, x_request_id=f"turn-{turn}").status_code == 200
            )
        built.ask({"model": "m", "messages": [{"role": "system", "content": "word " * 20_000}]}, x_request_id="refused")
        called = call(1, HOSTILE)
        hostile = {"model": HOSTILE, "messages": [{"role": HOSTILE, "content": HOSTILE}, called, result(1, "x")]}
        built.ask(hostile, x_request_id="hostile")
        built.logged("request_done", 14)
        yield built


AGENTS = ("crush", "codex", "aider")
LINE = "src/main.c:17: warning: unused variable\n"
OWN_LIMITS: dict[str, tuple[str, str, str, str]] = {
    "of-lines": ("wide", "bash", LINE * 2_600, "tool_output.max_lines, 2,000"),
    "of-bytes": ("wide", "bash", LINE * 1_500, "tool_output.max_bytes, 51,200"),
    "of-a-tool": ("wide", "Read", LINE * 1_000, "tool_output.tools.Read.max_bytes, 20,000"),
    "of-characters": ("short", "bash", LINE * 500, "models.max_tool_result_chars, 4,000"),
    "of-the-window": ("narrow", "bash", LINE * 500, "its share of the window, 3,600 bytes"),
}
"""Model, tool, its result, and the limit that it exceeds, as the dashboard words it; by request id."""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A proxy that three agents have used: results over each limit, and five kinds of trouble."""
    settings = {
        "defaults": {"context_window": 128_000},
        "models": [{"match": "short", "max_tool_result_chars": 4_000}, {"match": "narrow", "context_window": 6_000}],
        "tool_output": {"tools": {"Read": {"max_bytes": 20_000}}},
        "learning": {"enabled": False},
    }
    statuses = {"expired": 401, "gone": 404, "too-fast": 429, "broken": 500}

    def refuse(sent):
        status = statuses.get(sent.json["model"])
        return sent.face.error("no", status, type="x") if status else None

    upstream = model_server(30_000)
    upstream.rules = [refuse, *upstream.rules]
    with world(tmp_path_factory.mktemp("mixed") / "kept", upstream, [settings]) as built:
        for request_id, (model, tool, text, _) in OWN_LIMITS.items():
            messages = [{"role": "user", "content": request_id}, call(0, tool), result(0, text)]
            built.ask({"model": model, "messages": messages}, x_request_id=request_id, user_agent="crush/1.0")
        for number, model in enumerate((*statuses, "expired", "wide", "wide", "short")):
            request = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
            built.ask(request, x_request_id=f"of-{model}-{number}", user_agent=f"{AGENTS[number % 3]}/2.0 (linux)")
        huge = {"model": "wide", "messages": [{"role": "system", "content": "word " * 40_000}]}
        assert built.ask(huge, x_request_id="too-long", user_agent="aider").status_code == 400
        assert built.ask(b"{", x_request_id="malformed", user_agent="aider").status_code == 400
        built.logged("request_done", MIXED)
        yield built


MIXED = len(OWN_LIMITS) + 8 + 2


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def root(stage):
    return stage.proxies[0].removesuffix("/v1")


@pytest.fixture
def page(stage, chromium):
    """The dashboard, with its rows; no test may cause a console error or a request to another host."""
    chromium.complaints.clear()
    chromium.requested.clear()
    chromium.open(f"{root(stage)}/?{uuid.uuid4()}")  # another address, so that it is loaded anew
    chromium.until("document.readyState === 'complete' && document.querySelectorAll('#requests .row').length === 14")
    yield chromium
    assert chromium.value("document.title") == "context-proxy"
    assert chromium.complaints == []
    strangers = [url for url in chromium.requested if not url.startswith((root(stage) + "/", "data:image/svg+xml,"))]
    assert strangers == []


@pytest.fixture
def look_often(monkeypatch):
    """The proxy looks for news twenty times as often."""
    monkeypatch.setattr("proxy.shell.endpoints.operator.LOOK_SECONDS", 0.05)


def hurry(page):
    """From now on the page's timers run ten times as fast."""
    page.value("{ const later = setTimeout; window.setTimeout = (then, wait) => later(then, wait / 10) }")


def shown(page, what):
    found: str = page.value(f"document.querySelector('{what}').innerText")
    return found


def test_the_latest_requests_are_listed_with_what_was_kept_cut_and_left_out(page):
    assert page.value("document.querySelector('#requests .model').textContent") == HOSTILE
    assert page.value("document.querySelectorAll('#requests .row')[1].innerText").endswith("context length exceeded")
    label = page.value("document.querySelectorAll('#requests .row')[2].querySelector('[role=img]').ariaLabel")
    assert re.fullmatch(r"[\d,]+ tokens kept, [\d,]+ cut, [\d,]+ left out", label)
    assert shown(page, "#state") == "live"


def test_the_totals_are_those_of_the_proxy(page, stage):
    found = httpx.get(f"{root(stage)}/overview?hours=24", trust_env=False, timeout=PATIENCE_SECONDS).json()
    page.until("document.querySelector('#total-requests').innerText === '14'")
    assert shown(page, "#more-saved").endswith("of what fits the window")
    assert shown(page, "#total-prefix").endswith("%")
    assert shown(page, "#total-cured") == str(found["totals"]["cured"])
    assert page.value("document.querySelector('#total-cache').parentElement.hidden"), "nobody has reported it"
    assert shown(page, "#sum-saved") == shown(page, "#total-saved")
    assert shown(page, "#total-fitted") == str(found["totals"]["fitted"]) != "0"
    assert page.value("document.querySelector('#hours').value") == "1", "the data is young"
    assert shown(page, "#about").startswith(f"{found['proxy']['replica']} · {__version__} · up ")
    assert page.value("document.querySelector('#about').title").endswith(found["proxy"]["log"])
    assert page.value("document.querySelectorAll('#axis span').length") == 5
    assert page.value("document.querySelectorAll('#bars .kept').length") >= 1
    assert re.search(r"\d of 14 not answered · [\d.]+%", shown(page, "#upstreams"))


def test_what_is_wrong_comes_before_everything_else(page):
    page.until("document.querySelector('#troubles .bad')")
    assert re.match(r"\S*: 1 request was too long and could not be made to fit", shown(page, "#troubles .bad"))
    page.value("document.querySelector('#troubles .bad a').click()")
    assert len(listed(page, 1)) == 1
    page.value("document.querySelector('#only button').click()")
    listed(page, 14)


def test_a_click_opens_the_messages_with_their_reasons(page):
    page.value("document.querySelectorAll('#requests .row')[2].click()")
    page.until("document.querySelector('#detail .messages li, #detail .messages details')")
    assert "turn-11" in shown(page, "#detail h2")
    assert "messages left out" in shown(page, "#detail .messages")
    assert "tool_messages_" in page.value("document.querySelector('#detail .artifact a').href")
    page.value("document.querySelector('#detail summary').click()")
    page.until("document.querySelector('#detail details[open] li')")
    assert "old message left out" in shown(page, "#detail details[open] ol")
    assert "old messages left out" in shown(page, "#detail .reasons")
    assert re.fullmatch(
        r"[\d,]+ tokens were received. Of the window of 9,000, a prompt may have [\d,]+.", shown(page, ".why")
    )
    assert "old_exchange" not in shown(page, "#detail")


def test_an_original_is_shown_beside_its_replacement_with_the_requests_key(page):
    page.value("document.querySelectorAll('#requests .row')[2].click()")
    page.until("document.querySelector('#detail .artifact')")
    page.value("document.querySelector('#detail .artifact summary').click()")
    page.until("document.querySelector('#detail .key input')")
    page.complaints.clear()  # the browser's own word about the 404
    page.value(
        f"document.querySelector('#detail .key input').value = '{KEY}',"
        "document.querySelector('#detail .key').requestSubmit()"
    )
    page.until("document.querySelector('#detail .artifact .sides > :last-child pre')")
    page.until("document.querySelector('#detail .artifact .message')")
    was = page.value("[...document.querySelectorAll('#detail .message')].map(one => one.innerText.split('\\n')[0])")
    assert was[:2] == ["2 assistant", "3 bash"]
    assert "turn-0 0: " in page.value("document.querySelectorAll('#detail .message pre')[1].textContent")
    now = page.value("document.querySelector('#detail .artifact .sides > :last-child pre').textContent")
    assert re.match(r"Text: \[context-proxy: \d+ earlier messages", now)
    assert not page.value("document.querySelector('#detail .artifact .link')"), "all of it is on the first page"
    assert page.value("localStorage.length + sessionStorage.length") == 0


def test_what_was_taken_out_is_read_page_by_page_without_a_gap(page):
    page.value(f"agentKey = ['authorization', 'Bearer {KEY}']")
    page.value("document.querySelectorAll('#requests .row')[5].click()")
    one = "document.querySelector('#detail .artifact:has(a[href*=tool_bash])')"
    page.until(one)
    page.value(f"{one}.querySelector('summary').click()")
    page.until(f"{one}.querySelectorAll('pre').length === 2")
    first = page.value(f"{one}.querySelector('pre').textContent")
    assert "turn-8 0: " in first
    page.value(f"{one}.querySelector('.content .link').click()")
    page.until(f"!{one}.querySelector('pre').textContent.includes('turn-8 0: ')")
    numbers = [
        [int(found) for found in re.findall(r"turn-8 (\d+):", text)]
        for text in (first, page.value(f"{one}.querySelector('pre').textContent"))
    ]
    assert numbers[1][0] == numbers[0][-1] + 1
    assert "turn-8" in page.value(f"{one}.querySelectorAll('pre')[1].textContent")


def test_the_keyboard_goes_down_the_list_opens_and_comes_back(page):
    page.value("document.querySelector('#requests .row').focus()")
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.value("document.activeElement.querySelector('.model').textContent") == "own-model"
    page.press("Enter")
    page.until("!document.querySelector('#detail').hidden")
    assert page.value("document.activeElement.id") == "detail-title"
    page.press("Tab")
    assert page.value("document.activeElement.textContent") == "Close"
    page.press("Escape")
    assert page.value("document.querySelector('#detail').hidden")
    assert page.value("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.press("ArrowUp")
    assert "context length exceeded" in page.value("document.activeElement.innerText")


@pytest.mark.parametrize(
    ("address", "shows"),
    [
        ("turn-3", "document.querySelector('#detail-title')?.innerText.includes('turn-3')"),
        ("100%", "document.querySelectorAll('#requests .row').length === 14"),
        (
            "?q=turn-1&request=turn-11",
            "document.querySelectorAll('#requests .row').length === 3 && document.querySelector('#detail-title')"
            " && document.querySelector('#words').value === 'turn-1'",
        ),
        ("?view=conversations", "document.querySelector('.conversation')"),
    ],
)
def test_an_address_can_name_a_request_a_view_and_what_is_searched_for(page, stage, address, shows):
    page.open(f"{root(stage)}/?{uuid.uuid4()}#{address}")
    page.until(shows)


def test_names_in_a_request_are_text(page):
    page.value("document.querySelectorAll('#requests .row')[0].click()")
    page.until("document.querySelector('#detail summary')")
    page.value("document.querySelector('#detail summary').click()")
    page.until("document.querySelector('#detail .messages li')")
    assert HOSTILE in page.value("document.querySelector('#detail-title').textContent")
    assert HOSTILE[:32] in page.value("document.querySelector('#detail .messages').textContent")
    page.value("document.querySelector('[data-view=models]').click()")
    page.until("document.querySelector('#view-models').textContent.includes('onerror')")
    assert page.value("document.querySelectorAll('img, script:not([src])').length") == 0


ROWS = "document.querySelectorAll('#requests .row')"


def test_requests_can_be_filtered_and_the_address_holds_the_filter(page):
    page.value("document.querySelector('[data-filter=troubled]').click()")
    page.until(f"{ROWS}.length < 14")
    assert page.value(f"[...{ROWS}].some(one => one.innerText.includes('context length exceeded'))")
    assert page.value("location.hash") == "#?show=troubled"
    page.value("document.querySelector('[data-filter=all]').click()")
    page.until(f"{ROWS}.length === 14")
    page.value("document.querySelector('#words').value = 'EXCEEDED'")
    page.value("document.querySelector('#words').dispatchEvent(new Event('input'))")
    page.until(f"{ROWS}.length === 1")
    assert "1 of 14 requests" in shown(page, "#foot")
    page.value("document.querySelector('#words').value = 'of no request'")
    page.value("document.querySelector('#words').dispatchEvent(new Event('input'))")
    page.until("!document.querySelector('#none').hidden")
    assert page.value("document.querySelector('#empty').hidden")


def test_a_second_send_shows_its_own_budget_and_not_the_window(page):
    """A refusal may leave less than the window that is known."""
    why = page.value("whyOf({ tokens_before: 5000, room_tokens: 313, window_tokens: 9000, attempts: 2 })")
    assert why.startswith("5,000 tokens were received. The last send had a prompt budget of 313.")
    assert "9,000" not in why


def test_requests_are_chosen_by_their_agent(page):
    page.until("document.querySelector('#client').options.length > 1")
    page.value("document.querySelector('#client').value = 'python-httpx'")
    page.value("document.querySelector('#client').dispatchEvent(new Event('change'))")
    page.until("location.hash === '#?client=python-httpx'")
    page.value("narrow({ client: '' })")
    page.until(f"{ROWS}.length === 14")


@pytest.fixture
def mixed_page(mixed, chromium):
    """The dashboard of `mixed`."""
    chromium.complaints.clear()
    chromium.open(f"{root(mixed)}/?{uuid.uuid4()}")
    chromium.until(f"{ROWS}.length === {MIXED} && document.querySelector('#client').options.length > 3")
    return chromium


def choose(page, **filters):
    """Choose a filter as a hand does it."""
    for name, value in filters.items():
        page.value(f"document.querySelector('#{name}').value = '{value}'")
        page.value(f"document.querySelector('#{name}').dispatchEvent(new Event('change'))")


def listed(page, count):
    """The rows, once there are so many."""
    page.until(f"{ROWS}.length === {count}")
    rows: list[str] = page.value(f"[...{ROWS}].map(one => one.innerText.replaceAll('\\n', ' '))")
    return rows


@pytest.mark.parametrize("request_id", OWN_LIMITS)
def test_the_limit_that_a_result_exceeded_is_named_with_its_setting(mixed_page, request_id):
    limit = OWN_LIMITS[request_id][-1]
    mixed_page.value(f"openById('{request_id}')")
    mixed_page.until("document.querySelector('#detail .block .chip')")
    assert f"1 result exceeded {limit}." in shown(mixed_page, "#detail .why")
    chips = mixed_page.value("[...document.querySelectorAll('#detail .messages .chip')].map(one => one.innerText)")
    assert chips == ["1 long tool result cut", f"over {limit}"]


def test_filters_by_model_agent_and_status_combine(mixed_page):
    choose(mixed_page, status="4xx")
    assert len(listed(mixed_page, 6)) == 6
    choose(mixed_page, client="crush")
    rows = listed(mixed_page, 1)
    assert "expired" in rows[0]
    choose(mixed_page, status="", model="wide")
    rows = listed(mixed_page, 4)
    assert all("wide" in row and "crush" in row for row in rows)
    choose(mixed_page, client="codex", model="", status="401")
    assert "expired" in listed(mixed_page, 1)[0]
    assert mixed_page.value("location.hash") == "#?client=codex&status=401"
    assert f"1 of {MIXED} requests" in shown(mixed_page, "#foot")


def test_each_problem_is_counted_once_and_a_click_lists_just_these(mixed_page):
    problems = "7"
    mixed_page.until(f"document.querySelector('#total-requests').innerText === '{MIXED}'")
    assert shown(mixed_page, "#more-requests") == f"{problems} not answered"
    assert shown(mixed_page, "[data-filter=troubled]") == f"Problems {problems}"
    assert f"6 of {MIXED - 1} not answered" in shown(mixed_page, "#upstreams"), "one was sent nowhere"
    mixed_page.value("document.querySelector('#more-requests a').click()")
    rows = listed(mixed_page, int(problems))
    assert not any("answered" in row for row in rows)
    assert mixed_page.value("location.hash") == "#?show=troubled"


def test_the_banner_names_the_worst_first_and_a_click_lists_exactly_its_requests(mixed_page):
    mixed_page.until("document.querySelector('#troubles .bad')")
    levels = "[...document.querySelectorAll('#troubles li')].map(one => [one.className, one.innerText])"
    lines = mixed_page.value(levels)
    assert [level for level, _ in lines] == ["bad", "warn", "warn", "warn"]
    assert lines[0][1].startswith("wide: 1 request was too long and could not be made to fit")
    assert re.search(r"refused 2 of \d+ requests with 401, for a wrong or expired key\s*since \d+:\d\d", lines[1][1])
    assert {re.search(r"(failed|refused) 1 of \d+", words)[1] for _, words in lines[2:]} == {"failed", "refused"}
    mixed_page.value("document.querySelectorAll('#troubles a')[1].click()")
    assert all("expired" in row for row in listed(mixed_page, 2))
    mixed_page.until(f"{ROWS}[1].getBoundingClientRect().bottom < innerHeight")  # they are in sight
    assert re.match(r"Only requests to 127\.0\.0\.1:\d+, since \d+:\d\d:\d\d", shown(mixed_page, "#only"))
    address = mixed_page.value("location.href")
    mixed_page.open("about:blank")
    mixed_page.open(address)
    assert all("expired" in row for row in listed(mixed_page, 2)), "the address holds the filter"
    mixed_page.until(f"{ROWS}[1].getBoundingClientRect().bottom < innerHeight")


def test_an_upstream_with_errors_is_marked_and_shows_them_over_time(mixed_page):
    mixed_page.until("document.querySelector('#upstreams li')")
    assert mixed_page.value("document.querySelector('#upstreams li').className") == "warn"
    found = mixed_page.value("[...document.querySelectorAll('#upstreams .scale')].map((one) => one.innerText)")
    scales = [labels.split("\n") for labels in found]
    assert [labels[-1] for labels in scales] == ["0", "0"]
    assert re.fullmatch(r"\d+%", scales[0][0])
    assert re.fullmatch(r"[\d.]+ m?s", scales[1][0])
    assert mixed_page.value("document.querySelectorAll('#upstreams .error').length") >= 1


def test_a_request_that_the_proxy_refused_was_not_passed_on(mixed_page):
    mixed_page.value("openById('malformed')")
    mixed_page.until("document.querySelector('#detail .messages p')")
    assert shown(mixed_page, "#detail .messages") == "The proxy refused this request itself; nothing was sent."


def test_each_empty_list_says_why_it_is_empty(mixed_page):
    for show, words in (("cured", "No refusal had to be cured."), ("warned", "No request came with a warning.")):
        mixed_page.value(f"narrow({{ show: '{show}' }})")
        mixed_page.until(f"document.querySelector('#none').innerText === '{words}'")
    mixed_page.value("narrow({ show: 'all', q: 'zebra' })")
    mixed_page.until("document.querySelector('#none').innerText === 'No request has these words.'")
    mixed_page.value("narrow(CLEAR)")
    listed(mixed_page, MIXED)


def test_the_same_request_has_the_same_width_everywhere_and_what_did_not_fit_is_hatched(mixed_page):
    ends = "(one) => { const last = one.querySelectorAll('i'); const [end, all] = [last[last.length - 1], one]"
    ends += ".map(each => each.getBoundingClientRect()); return (end.right - all.left) / all.width; }"
    mixed_page.value("openById('of-bytes')")
    mixed_page.until("document.querySelector('#detail .block')")
    bars = [f"document.querySelector('{one} .strip')" for one in (".row[aria-expanded=true]", "#detail")]
    in_row, in_detail = mixed_page.value(f"[{', '.join(bars)}].map({ends})")
    assert in_row == pytest.approx(in_detail, abs=0.02)
    assert "gradient" in mixed_page.value(
        "getComputedStyle(document.querySelector('.row[aria-expanded=true] .cut')).backgroundImage"
    )


@pytest.mark.parametrize(
    ("state", "request_"),
    [
        ("being read", "{}"),
        ("waiting", "{ upstream: 'a', status: 0 }"),
        ("second send", "{ upstream: 'a', status: 0, attempts: 2 }"),
        ("reading what was kept", "{ upstream: 'a', status: 0, attempts: 2, retrieval_rounds: 1 }"),
        ("streaming", "{ upstream: 'a', status: 200, stream: true }"),
        ("receiving", "{ upstream: 'a', status: 200, stream: false, retrieval_rounds: 1 }"),
    ],
)
def test_a_request_under_way_says_what_it_is_doing(mixed_page, state, request_):
    assert mixed_page.value(f"stateOf({request_})") == state


def test_the_saved_list_has_the_rows_that_are_listed(mixed_page):
    choose(mixed_page, model="expired")
    listed(mixed_page, 2)
    mixed_page.value(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.savedText = text; }); return '#'; }"
    )
    mixed_page.value("document.querySelector('#csv').click()")
    mixed_page.until("window.savedText")
    rows = list(csv.DictReader(io.StringIO(mixed_page.value("window.savedText"))))
    assert [(row["model"], row["status"], row["client"]) for row in rows] == [
        ("expired", "401", "codex"),
        ("expired", "401", "crush"),
    ]


def test_the_list_can_be_saved_and_a_spreadsheet_computes_nothing_of_it(page):
    page.value("URL.createObjectURL = (blob) => { window.saved = blob; return '#'; }")
    page.value("document.querySelector('#csv').click()")
    page.until("window.saved")
    page.value("window.saved.text().then((text) => { window.savedText = text; })")
    page.until("window.savedText")
    lines = page.value("window.savedText").splitlines()
    assert lines[0].startswith('"ended","request_id","api","client","key","model"')
    assert len(lines) == 15
    assert '"python-httpx"' in lines[1]


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key"])
def test_a_key_is_tried_in_each_header_that_clients_send_it_in(page, header):
    page.value(
        "window.asked = []; window.fetch = (path, { headers }) => { window.asked.push(headers[0][0]);"
        f"return Promise.resolve(headers[0][0] === '{header}' ? new Response('x') : Response.json("
        "{ error: { message: 'no' } }, { status: 404 })); }"
    )
    page.value("chooseHeader('tool_x', 'the key').then(() => { window.chosen = agentKey[0]; })")
    page.until(f"window.chosen === '{header}'")
    assert page.value("window.asked").index(header) == len(page.value("window.asked")) - 1


def test_requests_are_grouped_by_conversation_with_their_growth(page):
    page.value("document.querySelector('[data-view=conversations]').click()")
    page.until("document.querySelectorAll('.conversation').length === 1")  # in the others, no user has said anything
    grown = "document.querySelector('.conversation')"
    assert "12 requests" in page.value(f"{grown}.innerText")
    assert page.value(f"{grown}.querySelectorAll('rect.saw').length") == 12
    label = page.value(f"{grown}.querySelector('[role=img]').ariaLabel")
    assert re.match(r"Turn 12: [\d,]+ tokens from the agent, [\d,]+ for the model", label)
    page.value(f"{grown}.click()")
    page.until(f"{ROWS}.length === 12")
    assert "Only requests of conversation" in shown(page, "#only")
    page.value("document.querySelector('#only button').click()")
    page.until(f"{ROWS}.length === 14")


@pytest.mark.usefixtures("look_often")
def test_a_request_appears_when_it_happens_and_older_ones_on_demand(chromium, tmp_path):
    chromium.complaints.clear()
    with world(tmp_path / "kept", model_server(8_000), [{}]) as built:
        for number in range(60):
            built.ask({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, x_request_id=f"n-{number}")
        built.logged("request_done", 60)
        chromium.open(f"{root(built)}/?{uuid.uuid4()}")
        chromium.until(f"{ROWS}.length === 50 && !document.querySelector('#older').hidden")
        hurry(chromium)
        chromium.value("document.querySelector('#older').click()")
        chromium.until(f"{ROWS}.length === 60 && document.querySelector('#older').hidden")
        built.ask({"model": "brand-new", "messages": [{"role": "user", "content": "hi"}]})
        chromium.until(f"{ROWS}[0].innerText.includes('brand-new')")
        chromium.until("document.querySelector('#total-requests').innerText === '61'")
        assert chromium.complaints == []
        chromium.open("about:blank")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_overflows_at_any_width_and_text_has_contrast(page, stage, width, dark):
    page.open(f"{root(stage)}/?{uuid.uuid4()}#turn-11", width=width, dark=dark)
    page.until("document.querySelector('#detail .messages li, #detail .messages details')")
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("document.querySelector('#detail').scrollWidth <= document.querySelector('#detail').clientWidth")
    ground = page.value("getComputedStyle(document.querySelector('#time')).backgroundColor")
    for words in ("#detail h2", ".row .time", ".row .good", "#detail dt", ".row .tokens .was", ".link", ".bad"):
        ink = page.value(f"getComputedStyle(document.querySelector('{words}')).color")
        assert contrast(ink, ground) >= 4.5, (words, ink, ground)
    root_style = "getComputedStyle(document.documentElement).getPropertyValue"
    for colour in ("kept", "cut", "gone", "edge", "good", "bad"):
        shade = page.value(f"{root_style}('--{colour}')").strip()
        drawn = "rgb({}, {}, {})".format(*(int(shade[at : at + 2], 16) for at in (1, 3, 5)))
        assert contrast(drawn, ground) >= 3.0, (colour, shade, ground)


def contrast(one, other):
    """WCAG 2.2, 1.4.3."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.usefixtures("look_often")
def test_a_request_under_way_is_shown_until_it_is_over(chromium, tmp_path):
    over = threading.Event()

    def hold(_):
        over.wait()

    upstream = model_server(8_000)
    upstream.rules = [hold, *upstream.rules]
    with world(tmp_path / "kept", upstream, [{}]) as slow, ThreadPoolExecutor(1) as other:
        pending = other.submit(slow.ask, {"model": HOSTILE, "messages": [{"role": "user", "content": "hi"}]})
        try:
            chromium.open(root(slow) + "/")
            chromium.until("document.querySelector('#running .row')")
            chromium.value("document.querySelector('#running .row').click()")
            chromium.until("document.querySelector('#detail .block')")
            assert "waiting" in shown(chromium, "#detail .facts")
            assert shown(chromium, "#running .model") == HOSTILE
            assert shown(chromium, "#running .outcome") == "waiting"
            assert shown(chromium, "#more-requests").startswith("1 under way")
        finally:
            over.set()
        assert pending.result().status_code == 200
        chromium.until("document.querySelector('#requests .row') && document.querySelector('#running').hidden")
        chromium.open("about:blank")
    assert chromium.value("document.title") != "pwned"


def test_a_proxy_that_is_gone_is_said_to_be(chromium, tmp_path):
    with contextlib.ExitStack() as stack:
        short_lived = stack.enter_context(world(tmp_path / "kept", model_server(8_000), [{}]))
        chromium.open(root(short_lived) + "/")
        chromium.until("document.querySelector('#state')?.dataset.state === 'live'")
        hurry(chromium)
        assert not chromium.value("document.querySelector('#empty').hidden")
        assert chromium.value("document.querySelector('#base-url').textContent") == short_lived.proxies[0]
        offered = chromium.value("[...document.querySelectorAll('#agents button')].map(one => one.textContent)")
        known = {f"context-proxy run {agent.command}" for agent in AGENTS_OF_RUN}
        assert len(offered) == len(set(offered) & known) > 5
    chromium.until("document.querySelector('#state').dataset.state === 'lost'")


def test_the_page_may_load_nothing_but_its_own_files(stage):
    answer = httpx.get(root(stage) + "/", trust_env=False, timeout=PATIENCE_SECONDS)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    for name in re.findall(r'(?:src|href)="(dashboard/[^"]+)"', answer.text):
        found = httpx.get(f"{root(stage)}/{name}", trust_env=False, timeout=PATIENCE_SECONDS)
        assert (found.status_code, found.headers["x-content-type-options"]) == (200, "nosniff")
        assert found.headers["content-type"].startswith("text/")
    assert not re.search(r"\son\w+=|<script>|<style|style=", answer.text)


def test_the_page_is_small_and_has_words_for_every_reason(stage):
    files = ("index.html", "dashboard.css", "dashboard.js", "strip.css", "strip.js")
    assert sum((FOLDER / name).stat().st_size for name in files) <= 100 * 1024
    reported = httpx.get(f"{root(stage)}/decisions", trust_env=False, timeout=PATIENCE_SECONDS).json()["reasons"]
    assert reported == {reason.value: [reason.one, reason.several] for reason in Reason}
    assert reported["old_exchange"] == ["1 old message left out", "# old messages left out"]


def test_the_files_name_no_other_place_and_write_no_markup():
    for path in FOLDER.iterdir():
        if path.suffix in (".js", ".css", ".html"):
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text, path.name
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", text)


def test_nothing_else_of_the_folder_is_served(stage):
    for name in ("__init__.py", "../settings.py", "%2e%2e/settings.py", "index.html/../__init__.py"):
        assert (
            httpx.get(f"{root(stage)}/dashboard/{name}", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 404
        )
