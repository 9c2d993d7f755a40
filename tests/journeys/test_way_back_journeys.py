"""What a conversation has lost is found again, on every API; one that has lost nothing is not touched."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from support.journey import World, call, long_text, result
from support.spellings import SPELLINGS
from support.upstream import Call, Reply, Sent

FACTS = [
    f"{name}'s {thing} is K{7_000 + 13 * number}."
    for number, (name, thing) in enumerate(
        (name, thing)
        for name in ("Mara", "Ilya", "Okoro", "Priya", "Dalia")
        for thing in ("budget", "seat", "flight", "dentist")
    )
]
TALK = "The train was late and the platform was full of people with skis. " * 12


ON_EVERY_API = pytest.mark.parametrize("api", SPELLINGS)
TOOLS = pytest.mark.parametrize("tools", [[], ["fetch"], ["read_file"]], ids=["chat", "no shell", "reader"])


def request(api: str, messages: list[dict[str, Any]], tools: list[str], **more: Any) -> dict[str, Any]:
    spelling = SPELLINGS[api]
    return {"model": "m", **spelling.request("", messages, tools, 300), spelling.member: messages, **more}


def path_of(api: str) -> str:
    return SPELLINGS[api].path.removeprefix("/v1")


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


@ON_EVERY_API
@TOOLS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_request_without_a_cut_leaves_as_the_very_bytes(api: str, tools: list[str], stream: bool, build: Any) -> None:
    world = build()
    messages = [said("user", "Hello."), said("assistant", "Hm."), said("user", FACTS[0])]
    for shape in ({"indent": 1}, {"separators": (",", ":")}):
        body = json.dumps(request(api, messages, tools, stream=stream, seed=7), **shape).encode()
        answer = world.ask(body, path=path_of(api))
        assert (answer.status_code, world.upstream.last.body) == (200, body)
        assert "x-context-proxy-edits" not in answer.headers
        messages += [said("assistant", "Hm."), said("user", "And?")]


def asking(fact: str) -> Callable[[Sent], Reply]:
    """A model that knows what it reads, and asks for what it does not find there by the words of the question."""
    subject, _, value = fact.removesuffix(".").partition(" is ")

    def thought(sent: Sent) -> Reply:
        body = sent.body.decode()
        if f"What is {subject}?" not in body:
            return Reply("I see.")
        if value in body:
            return Reply(f"It is {value}.")
        return Reply("", (Call("read_artifact", {"grep": subject.replace("'s", "")}),))

    return thought


@ON_EVERY_API
@pytest.mark.parametrize("tools", [[], ["fetch"]], ids=["chat", "no shell"])
def test_over_forty_turns_the_model_asks_for_what_was_cut_and_gets_it(api: str, tools: list[str], build: Any) -> None:
    fact = FACTS[2]
    world = build(8_000, says=asking(fact))
    path, messages = path_of(api), list[dict[str, Any]]()
    for turn in range(40):
        told = FACTS[turn] if turn < len(FACTS) else "Nothing new."
        messages += [said("user", f"{TALK} {told} {TALK}"), said("assistant", TALK)]
        assert world.ask(request(api, messages[:-1], tools), path=path).status_code == 200
    before = len(world.upstream.sent)
    messages.append(said("user", f"What is {fact.partition(' is ')[0]}?"))
    answer = world.ask(request(api, messages, tools), path=path)
    assert fact.removesuffix(".").rpartition(" ")[2] in answer.text
    assert "read_artifact" not in answer.text
    assert len(world.upstream.sent) - before == 2, "one search"


def test_a_model_that_calls_in_vain_first_gets_its_page_however_full_the_window_is(build: Any) -> None:
    subject, _, value = FACTS[2].removesuffix(".").partition(" is ")
    calls: list[Reply] = []

    def thought(sent: Sent) -> Reply:
        body = sent.body.decode()
        if f"What is {subject}?" not in body or value in body:
            return Reply(f"It is {value}." if value in body else "I see.")
        return calls.pop() if calls else Reply("", (Call("read_artifact", {"grep": "flight"}),))

    world = build(8_000, says=thought)
    path, messages = path_of("ollama"), list[dict[str, Any]]()
    for turn in range(45):
        told = FACTS[turn] if turn < len(FACTS) else "Nothing new."
        messages.append(said("user", f"{TALK} {told} {TALK}" if turn < 34 else f"{TALK} {TALK}"))
        world.ask(request("ollama", messages, []), path=path)
        messages.append(said("assistant", TALK if turn < 34 else TALK[: 60 + 25 * (turn - 34)]))
        if turn >= 34:
            calls += [Reply("", (Call("read_artifact", {}),))] * 2
            answer = world.ask(request("ollama", [*messages, said("user", f"What is {subject}?")], []), path=path)
            assert value in answer.text, turn


def test_a_fact_on_page_3_of_300_takes_one_call(build: Any) -> None:
    world = build(8_000, says=asking("The lamp of pier 9 is K4711."))
    messages: list[dict[str, Any]] = [said("user", "Read all pages.")]
    for page in range(1, 301):
        text = long_text(40, f"page-{page}") + ("\nThe lamp of pier 9 is K4711.\n" if page == 3 else "")
        messages += [call(page, "fetch_page", json.dumps({"page": page})), result(page, text)]
    messages += [said("assistant", "Done."), said("user", "What is The lamp of pier 9?")]
    answer = world.ask(request("chat", messages, ["fetch_page"]))
    assert answer.json()["choices"][0]["message"]["content"] == "It is K4711."
    assert world.logged("request_done")[0]["retrieval_rounds"] == 1


def test_reading_on_from_a_match_takes_one_call(build: Any) -> None:
    world: World = build(8_000)
    rows = [f"lamp {number} has the number K{number * 7}" for number in range(3_000)]

    def thought(sent: Sent) -> Reply:
        newest = str(sent.messages[-1]["content"])
        if "K10521" in newest:
            return Reply("It is K10521.")
        if "-- tool_" in newest:
            name, lines = newest.partition("-- ")[2].split(":")[0].split(" lines=")
            return Reply("", (Call("read_artifact", {"id": name, "lines": lines}),))
        return Reply("", (Call("read_artifact", {"grep": "lamp 1500", "context": 0}),))

    world.upstream.says = thought
    messages = [
        said("user", "Which number has the third lamp behind 1500?"),
        call(1, "fetch"),
        result(1, "\n".join(rows)),
    ]
    answer = world.ask(request("chat", messages, ["fetch"]))
    assert answer.json()["choices"][0]["message"]["content"] == "It is K10521."
    assert world.logged("request_done")[0]["retrieval_rounds"] == 2


@ON_EVERY_API
def test_a_model_that_never_calls_our_tool_alone_gets_its_page_within_three_turns(api: str, build: Any) -> None:
    def thought(sent: Sent) -> Reply:
        if "K4711" in sent.body.decode():
            return Reply("It is K4711.")
        return Reply("", (Call("fetch", {}), Call("read_artifact", {"grep": "lamp of pier 9"})))

    world = build(8_000, says=thought)
    path = path_of(api)
    messages = [said("user", f"{TALK} The lamp of pier 9 is K4711. {TALK}"), said("assistant", TALK)]
    messages += [said(role, TALK) for _ in range(40) for role in ("user", "assistant")]
    messages.append(said("user", "Which lamp?"))
    for turn in range(3):
        answer = world.ask(request(api, messages, ["fetch"]), path=path)
        assert (answer.status_code, "read_artifact" in answer.text) == (200, False), turn
        if "K4711" in answer.text:
            break
        reply = SPELLINGS[api].reply_in(answer.content, streamed=False)
        messages += [*reply.items, *SPELLINGS[api].results([(name, "no") for name in reply.calls])]
    assert "K4711" in answer.text


def test_the_command_of_a_notice_searches_everything_that_left(build: Any) -> None:
    world = build(8_000)
    messages = [
        said("user", "Hello."),
        said("assistant", "Hm."),
        said("user", "The lamp of pier 9 is K4711."),
        said("assistant", TALK),
    ]
    messages += [said(role, TALK) for _ in range(60) for role in ("user", "assistant")]
    world.ask(request("chat", [*messages, said("user", "Which lamp?")], ["bash"]))
    text = "".join(str(message["content"]) for message in world.upstream.last.messages)
    command = text.partition("to search them: ")[2].partition("]\n")[0].replace("REGEX", "pier 9 is [A-Z0-9]{5}")
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert "pier 9 is K4711" in found
    assert len([name for name in world.kept if name.startswith("tool_messages_")]) > 2
