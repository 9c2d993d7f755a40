"""The whole proxy on a made-up API whose bodies are lines: a wire is one folder, and all layers above work with it."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import httpx
import pytest
from support.journey import KEY, World, long_text
from support.line_api import LINES
from support.media_samples import PNG, data_url
from support.upstream import Over, Rule, Says, ScriptedModel, answering, listening, valid
from support.upstream import words as words_of
from support.upstream.lines import Lines, blind, tokens_of

from proxy.core.conversation import Message
from proxy.wire import WIRES, Wire

Build = Callable[..., World]
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
LONG = long_text(5_000)
TASK = [b"system\n> You help.", b"user\n> Look at the log."]


@pytest.fixture
def lines(build: Build, monkeypatch: pytest.MonkeyPatch) -> Build:
    """`build` for a proxy to which lines are one more wire."""
    monkeypatch.setitem(cast(dict[bytes, Wire], WIRES), LINES.end, LINES)

    def built(window_tokens: int = 128_000, *rules: Rule, says: Says | None = None, **stated: Any) -> World:
        upstream = ScriptedModel([valid, *rules], says or words_of("> Done."), [Lines()])
        return build(window_tokens, behind=upstream, **stated)

    return built


def over(tokens: int, *, late: bool = False) -> Over:
    """The limit of a window."""
    said = "too_long\n> The prompt has {seen} tokens, but the context window is {limit} tokens."
    return Over("prompt", tokens, said, arrives="first event" if late else "body")


def answer_to(world: World, content: bytes, *, proxy: int = 0) -> httpx.Response:
    root = world.proxies[proxy].removesuffix("/v1")
    return world.client.post(root + LINES.path, content=content, headers={"authorization": f"Bearer {KEY}"})


def message(head: str, text: str) -> bytes:
    return "\n".join([head, *(f"> {line}" for line in text.split("\n"))]).encode()


CALL = b"assistant fetch\n= {}"


def body(messages: Sequence[bytes], *, stream: bool = False, offers: str = "", **head: str) -> bytes:
    named = {"model": "m", **({} if stream else {"whole": "yes"}), **({"offers": offers} if offers else {}), **head}
    blocks = ["\n".join(f"{name}: {value}" for name, value in named.items()).encode(), *messages]
    return b"".join(block + b"\n\n" for block in blocks)


def one_call(text: str = LONG) -> list[bytes]:
    return [*TASK, CALL, message("tool", text)]


def sent(world: World, number: int = -1) -> Sequence[Message]:
    return LINES.parse(world.upstream.sent[number].body).conversation.messages


def answer_lines(answer: httpx.Response) -> list[str]:
    """The lines of an answer, however it came."""
    if answer.headers["content-type"] == "text/x-lines":
        assert answer.text.endswith("\n")
    return answer.text.removesuffix("\n").split("\n")


def words(answer: httpx.Response) -> str:
    return "\n".join(line[2:] for line in answer_lines(answer) if line.startswith("> "))


@STREAMED
def test_what_fits_passes_byte_for_byte_in_both_directions(stream: bool, lines: Build) -> None:
    world = lines(says=words_of("> Hello\n> there."))
    content = body(TASK, stream=stream, colour="blue")
    answer = answer_to(world, content)
    assert world.upstream.last.body == content
    assert answer_lines(answer)[:4] == ["assistant", "> Hello", "> there.", "ended: done"]
    assert world.logged("request_done")[0]["outcome"] == "answered"


def test_a_long_result_is_kept_whole_and_sent_as_an_excerpt(lines: Build) -> None:
    world = lines()
    messages = one_call()
    answer = answer_to(world, body(messages, offers="fetch bash", colour="blue"))
    assert answer.headers["x-context-proxy-edits"] == "truncate_tool_output=1"
    assert list(world.upstream.last.files.values()) == [LONG.encode()]
    *before, result = sent(world)
    assert [found.raw for found in before] == messages[:-1]
    assert next(iter(world.kept)) in result.text()
    assert "[context-proxy: " in result.text()
    assert (result.role, result.answers) == ("tool", "1")
    shown = world.client.get(f"{world.proxies[0].removesuffix('/v1')}/decisions/{answer.headers['x-request-id']}")
    assert [block["role"] for block in shown.json()["blocks"]] == ["system", "user", "assistant", "tool"]
    assert len(result.raw) < 51_200
    assert world.upstream.last.body.startswith(body([], offers="fetch bash", colour="blue").rstrip())


def grown(exchanges: int) -> list[bytes]:
    """A task and so many exchanges of two parallel calls."""
    found = list(TASK)
    for number in range(exchanges):
        ids = f"{number}a", f"{number}b"
        found.append(f"assistant fetch fetch\n= {{}}\n= {{}}\n> Step {number}.".encode())
        found += [message("tool", f"{one}\n" + long_text(15, f"row {one}")) for one in ids]
    return found


@pytest.mark.usefixtures("counted_as_gpt_4o")
def test_a_run_longer_than_the_window_continues_behind_a_stable_prefix(lines: Build) -> None:
    window = 6_000
    model, learning = [{"match": "*", "tokenizer": "o200k_base"}], {"enabled": False}
    world = lines(window, over(window), proxies=[{}, {}], models=model, learning=learning)
    for exchanges in range(1, 41):
        answer = answer_to(world, body(grown(exchanges), limits="most=300"))
        assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "1"), answer.text
    last = sent(world)
    assert [found.raw for found in last[:2]] == TASK
    assert sum("earlier messages" in found.text() for found in last) == 1
    assert last[-1].raw == grown(40)[-1]
    bodies = [received.body for received in world.upstream.sent]
    cuts = sum(not after.startswith(before) for before, after in itertools.pairwise(bodies))
    assert 0 < cuts < 8
    assert answer_to(world, body(grown(40), limits="most=300"), proxy=1).status_code == 200
    assert world.upstream.last.body == bodies[-1], "a replica that has seen none of it sends the same"
    gone = [found for found in LINES.parse(body(grown(40))).conversation if found not in last]
    note = next(found.text() for found in last if "earlier messages" in found.text())
    named = next(name for name in world.kept if name in note and name.startswith("tool_messages_"))
    newest = json.loads(world.kept[named])
    kept: list[str] = newest["messages"]
    for earlier in newest["earlier"]:
        kept = [*json.loads(world.kept[earlier])["messages"], *kept]
    assert [one.encode() for one in kept] == [found.raw for found in gone[: len(kept)]]
    masked = [found.text().encode() for found in gone[len(kept) :]]
    assert set(masked) <= {*world.kept.values()}, "what the note does not name is a result with a place of its own"


@pytest.mark.parametrize("reads", [["text"], ["text", "vision"]], ids=["blind", "seeing"])
def test_an_image_is_shown_where_the_model_reads_it_or_described(reads: list[str], lines: Build) -> None:
    world = lines(models=[{"match": "*", "input": reads}])
    result = f"tool\n> a screenshot\n! {data_url(PNG, 'image/png')}".encode()
    shown = f"user\n> and this\n! {data_url(PNG, 'image/jpeg')}".encode()
    answer = answer_to(world, body([*TASK, CALL, result, shown]))
    assert answer.status_code == 200, answer.text
    found = sent(world)
    payload = base64.b64encode(PNG)
    if "vision" in reads:
        assert [one.role for one in found if one.images] == ["user", "user"]
        assert found[-1].raw == shown.replace(b"image/jpeg", b"image/png"), "a wrong type is corrected"
    else:
        assert payload not in world.upstream.last.body
        assert PNG in world.kept.values()
        assert "[cannot read]" in found[3].text()
    assert found[3].answers == "1"


def test_an_image_on_the_web_comes_to_the_upstream_as_bytes(lines: Build) -> None:
    world = lines(
        models=[{"match": "*", "input": ["text", "vision"]}],
        media={"fetch_remote_images": True, "allow_private_addresses": True},
    )
    head = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: %d\r\n\r\n" % len(PNG)
    with listening(answering(head + PNG)) as address:
        answer = answer_to(world, body([*TASK, f"user\n> What is it?\n! {address}/a.png".encode()]))
    assert answer.status_code == 200, answer.text
    words, label, image = sent(world)[-1].raw.removeprefix(b"user\n").split(b"\n")
    assert (words, image) == (b"> What is it?", f"! {data_url(PNG, 'image/png')}".encode())
    assert label.startswith(b"> [image: a.png, kept in tool_fetched_"), "a chat opens no path"
    assert b"read_artifact" not in world.upstream.last.body, "nothing is left out"


def test_a_content_inside_a_text_becomes_words(lines: Build) -> None:
    world = lines()
    answer_to(world, body(one_call(f"Here: {data_url(PNG, 'image/png')} is it.")))
    assert "[cannot read]" in sent(world)[3].text()
    assert base64.b64encode(PNG) not in world.upstream.last.body


def test_a_window_that_a_request_states_binds_it_and_no_other(lines: Build) -> None:
    world = lines(
        50_000,
    )
    for limits, is_cut in (("window=6000 most=300", True), ("most=300", False), ("window=6000", True)):
        assert answer_to(world, body(grown(20), limits=limits)).status_code == 200
        assert (len(sent(world)) < len(grown(20))) == is_cut
        assert (tokens_of(LINES.parse(world.upstream.last.body)) <= 6_000) == is_cut


def test_a_refusal_of_a_window_that_a_request_states_teaches_only_such_requests(lines: Build) -> None:
    world = lines(50_000, over(8_000))
    stated = body(grown(30), limits="window=12000")
    assert [answer_to(world, stated).headers["x-context-proxy-attempts"] for _ in range(2)] == ["2", "1"]
    world.upstream.rules = [valid]
    for plain in (body(grown(30)), body(grown(30), limits="window=12001")):
        answer_to(world, plain)
        assert tokens_of(LINES.parse(world.upstream.last.body)) > 8_000


def test_a_reply_limit_that_leaves_no_room_is_lowered_in_place(lines: Build) -> None:
    world = lines()
    answer_to(world, body(TASK, limits="window=6000 most=9000", colour="blue"))
    head = world.upstream.last.body.partition(b"\n\n")[0].decode().split("\n")
    (limits,) = (line for line in head if line.startswith("limits: "))
    assert limits.startswith("limits: window=6000 most=")
    assert int(limits.rpartition("=")[2]) < 6_000
    assert "colour: blue" in head


@STREAMED
@pytest.mark.parametrize("late", [False, True], ids=["status", "line"])
def test_a_refusal_is_cured_unseen(stream: bool, late: bool, lines: Build) -> None:
    world = lines(15_000, over(8_000, late=late), says=words_of("> Here I am."))
    answer = answer_to(world, body(grown(30), stream=stream))
    assert (answer.status_code, words(answer)) == (200, "Here I am.")
    assert answer.headers["x-context-proxy-attempts"] == "2"
    first, second = (LINES.parse(received.body) for received in world.upstream.sent)
    assert len(second.conversation) < len(first.conversation)
    assert "refused" not in answer.text
    assert world.logged("lesson_learned")[0]["value"] == 8_000
    assert answer_to(world, body(grown(31), stream=stream)).headers["x-context-proxy-attempts"] == "1"


@STREAMED
def test_an_image_that_is_refused_is_sent_as_words_and_that_is_remembered(stream: bool, lines: Build) -> None:
    world = lines(128_000, blind, says=words_of("> I cannot see it."))
    messages = [*TASK, f"user\n> What is it?\n! {data_url(PNG, 'image/png')}".encode()]
    for attempts in ("2", "1"):
        answer = answer_to(world, body(messages, stream=stream))
        assert (answer.status_code, words(answer)) == (200, "I cannot see it.")
        assert answer.headers["x-context-proxy-attempts"] == attempts
        assert "[cannot read]" in sent(world)[-1].text()
    assert PNG in world.kept.values()


@STREAMED
def test_what_cannot_be_cured_is_refused_in_the_words_of_the_api(stream: bool, lines: Build) -> None:
    world = lines(15_000, over(10))
    answer = answer_to(world, body(grown(30), stream=stream))
    assert len(world.upstream.sent) == 2
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert answer_lines(answer)[0] == "refused: context_length_exceeded"
    assert "once more after its prompt" in words(answer)


def test_required_content_that_never_fits_is_refused_before_it_is_sent(lines: Build) -> None:
    world = lines(
        8_000,
    )
    answer = answer_to(world, body([message("system", LONG), *TASK[1:]], model="gpt-4o"))
    assert (answer.status_code, answer_lines(answer)[0]) == (400, "refused: context_length_exceeded")
    assert "messages[0] (system" in words(answer)
    assert world.upstream.sent == []


def test_a_history_that_does_not_pair_up_is_refused_repaired_and_remembered(lines: Build) -> None:
    world = lines()
    broken = [
        *TASK,
        b"assistant fetch look\n= {}\n= {}",
        message("tool", "one"),
        b"assistant\n> Oh.",
        b"user\n> Go on.",
    ]
    for attempts in ("2", "1"):
        answer = answer_to(world, body(broken))
        assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, attempts)
        *before, added, oh, more = sent(world)
        assert [one.raw for one in (*before, oh, more)] == broken
        assert (added.role, added.name, added.answers) == ("tool", "look", "2")


def test_a_refusal_whose_limit_the_request_quotes_teaches_as_its_count_is_the_upstreams(lines: Build) -> None:
    world = lines(15_000, over(8_000))
    quoted = message("user", 'It said "the context window is 8000 tokens" again.')
    answer = answer_to(world, body([*grown(30), quoted]))
    assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "2")
    assert [line["value"] for line in world.log("lesson_learned") if line["lesson"] == "window"] == [8_000]


def test_what_is_no_request_is_refused_in_the_words_of_the_api(lines: Build) -> None:
    answer = answer_to(lines(), b"model: m")
    assert answer.status_code == 400
    assert answer_lines(answer) == ["refused: malformed_request", "> a request ends with a blank line"]


# read_artifact


def learnt(lines: Build) -> tuple[World, str]:
    """A world, and the name of the artifact in it; its model is taught later."""
    world = lines()
    answer_to(world, body(one_call(), offers="fetch"))
    world.upstream.sent.clear()
    return world, next(iter(world.kept))


def reads(name: str, **parameters: str) -> str:
    given = ", ".join(f'"{key}": "{value}"' for key, value in {"id": name, **parameters}.items())
    return f"+ read_artifact\n= {{{given}}}"


@STREAMED
def test_a_call_of_our_tool_is_answered_on_the_way(stream: bool, lines: Build) -> None:
    world, name = learnt(lines)
    world.upstream.says = words_of(f"> Let me look.\n{reads(name, lines='2500-2502')}", "> It is 42.")
    answer = answer_to(world, body(one_call(), offers="fetch", stream=stream))
    assert words(answer) == "Let me look.\n\nIt is 42."
    assert "read_artifact" not in answer.text
    assert answer_lines(answer).count("assistant") == 1
    first, second = world.upstream.sent
    assert b"\noffers: fetch read_artifact\n" in first.body
    assert second.body.startswith(first.body)
    made, page = sent(world)[-2:]
    given = f'{{"id": "{name}", "lines": "2500-2502"}}'
    assert made.raw == f"assistant read_artifact\n= {given}\n> Let me look.".encode()
    assert page.answers == "1"
    assert page.text().rstrip("\n").endswith("".join(LONG.splitlines(keepends=True)[2499:2502]).rstrip("\n"))
    done = world.logged("request_done", 2)[-1]
    assert (done["retrieval_rounds"], done["outcome"]) == (1, "answered")
    counted = next(line for line in answer_lines(answer) if line.startswith("counted: ")).split()
    assert int(counted[1]) == tokens_of(LINES.parse(first.body)), "of the prompt that the client has"
    assert done["usage"]["prompt_tokens"] == sum(tokens_of(LINES.parse(one.body)) for one in (first, second))
    assert int(counted[2]) == done["usage"]["completion_tokens"]


@STREAMED
@pytest.mark.parametrize("spoken", [True, False])
def test_after_eight_readings_the_answer_ends(spoken: bool, stream: bool, lines: Build) -> None:
    world, name = learnt(lines)
    world.upstream.says = words_of(("> Once more.\n" if spoken else "") + reads(name, lines="1-5"))
    answer = answer_to(world, body(one_call(), offers="fetch", stream=stream))
    assert len(world.upstream.sent) == 9
    assert "ended: done" in answer_lines(answer)
    assert words(answer) == "\n\n".join(["Once more."] * 9) if spoken else "8 pages" in words(answer)


@STREAMED
@pytest.mark.parametrize("is_first", [True, False], ids=["ours_first", "ours_last"])
def test_what_was_called_beside_a_call_of_the_client_is_read_in_the_next_turn(
    is_first: bool, stream: bool, lines: Build
) -> None:
    world, name = learnt(lines)
    mixed = "\n".join([reads(name, lines="2507-2508"), '+ fetch\n= {"url": "x"}'][:: 1 if is_first else -1])
    world.upstream.says = words_of(f"> Both.\n{mixed}", "> I see.")
    answer = answer_to(world, body(one_call(), offers="fetch", stream=stream))
    assert answer_lines(answer)[1:5] == ["> Both.", "+ fetch", '= {"url": "x"}', "ended: calls"]
    back = [*one_call(), b'assistant fetch\n= {"url": "x"}\n> Both.', message("tool", "a page")]
    assert words(answer_to(world, body(back, offers="fetch"))) == "I see."
    *_, whole, result, page = sent(world)
    assert ([one.name for one in whole.calls], result.raw) == (["fetch"], back[-1])
    assert (page.role, "line 2506: " in page.text()) == ("user", True)
    answer_to(world, body([*back, b"assistant\n> I see.", b"user\n> Go on."], offers="fetch"))
    assert "line 2506: " not in world.upstream.last.body.decode()


def test_a_request_that_must_call_goes_without_our_tool(lines: Build) -> None:
    world = lines()
    content = body([*TASK], offers="fetch", **{"must call": "yes"})
    answer_to(world, content)
    assert world.upstream.last.body == content
