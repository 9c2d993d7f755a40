"""The whole proxy in front of an Ollama that cuts what is too long without a word, on Ollama's own API."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from support.journey import KEY, World, long_text
from support.media_samples import PNG
from support.serving import serving
from support.upstream import Answer, listening
from support.upstream.ollama import CHAT, COUNTER, Completion, Json, tokens_of
from support.upstream.ollama_server import Model, OllamaServer
from support.waiting import wait_until

from proxy.app import create_app
from proxy.config import Settings

Build = Callable[..., World]
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "lines"])
LONG = long_text(5_000)
TASK = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Look at the log."}]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("fetch", "look")
]


@pytest.fixture
def ollama(build: Build) -> Build:
    """`build` for an upstream that is an Ollama and states its windows itself."""

    def built(answer: OllamaServer | None = None, **stated: Any) -> World:
        return build(behind=answer or OllamaServer(), **{"defaults": {}, **stated})

    return built


def request(messages: Sequence[Json], *, stream: bool = False, **members: Any) -> Json:
    """A body as ollama-python writes it."""
    return {"model": "m", "stream": stream, "options": {}, "messages": [*messages], "tools": TOOLS, **members}


def answer_to(world: World, body: Json | bytes, *, proxy: int = 0, path: str = CHAT) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    root = world.proxies[proxy].removesuffix("/v1")
    return world.client.post(root + path, content=content, headers={"authorization": f"Bearer {KEY}"})


def call(*names: str, content: str | None = None) -> Json:
    """A message as ollama-python writes it: without ids, and without `content` if there is none."""
    calls = [{"function": {"name": name, "arguments": {"n": number}}} for number, name in enumerate(names)]
    return {"role": "assistant", **({} if content is None else {"content": content}), "tool_calls": calls}


def result(text: str, name: str = "fetch") -> Json:
    return {"role": "tool", "content": text, "tool_name": name}


def one_call(text: str = LONG) -> list[Json]:
    return [*TASK, call("fetch"), result(text)]


def grown(exchanges: int, *, is_named: bool = False) -> list[Json]:
    """A task, and so many exchanges of two parallel calls, whose results name nothing, as most clients write them."""
    found = list(TASK)
    for number in range(exchanges):
        found.append(call("fetch", "look", content=f"Step {number}."))
        for one in ("fetch", "look"):
            text = f"{number} {one}\n" + long_text(15, f"row {number} {one}")
            found.append(result(text, one) if is_named else {"role": "tool", "content": text})
    return found


def answer_objects(answer: httpx.Response) -> list[Json]:
    """The objects of an answer, however it came: exactly one is the last."""
    if answer.headers["content-type"] == "application/x-ndjson":
        assert answer.text.endswith("\n")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [bool(line.get("done") or "error" in line) for line in lines] == [*[False] * (len(lines) - 1), True]
    return lines


def words(answer: httpx.Response) -> str:
    return "".join(line["message"]["content"] for line in answer_objects(answer) if "message" in line)


def sent(world: World, number: int = -1) -> list[Json]:
    return world.upstream.sent[number].messages


@STREAMED
@pytest.mark.parametrize("piece_bytes", [None, 7])
def test_what_fits_passes_byte_for_byte_in_both_directions(
    stream: bool, piece_bytes: int | None, ollama: Build
) -> None:
    model = OllamaServer(replies=[Completion("Hello there.", "Hm, hm.")], piece_bytes=piece_bytes)
    world = ollama(model)
    content = json.dumps(request(TASK, stream=stream, tools=[], colour="blue"), indent=1).encode()
    answer = answer_to(world, content)
    assert world.upstream.last.body == content
    assert answer.text.encode() == answer_to(world, content).text.encode()
    assert words(answer) == "Hello there."
    assert world.logged("request_done")[0]["outcome"] == "answered"


def test_a_long_result_is_kept_whole_and_sent_as_an_excerpt(ollama: Build) -> None:
    world = ollama(OllamaServer(allocates=64_000))
    answer = answer_to(world, request(one_call(), keep_alive="5m", format="json"))
    assert answer.headers["x-context-proxy-edits"] == "truncate_tool_output=1", "a reply that must be JSON cannot call"
    assert list(world.upstream.last.files.values()) == [LONG.encode()]
    *before, found = sent(world)
    assert before == one_call()[:-1]
    assert next(iter(world.kept)) in found["content"]
    assert "[context-proxy: " in found["content"]
    assert found["tool_name"] == "fetch"
    body = json.loads(world.upstream.last.body)
    assert list(body) == ["model", "stream", "options", "messages", "tools", "keep_alive", "format"]


@pytest.mark.parametrize("is_named", [False, True], ids=["order", "names"])
def test_a_run_longer_than_the_window_is_never_cut_by_the_server(is_named: bool, ollama: Build) -> None:
    model = OllamaServer(allocates=8_192)
    world = ollama(model, proxies=[{}, {}], learning={"enabled": False})
    for exchanges in range(1, 41):
        answer = answer_to(world, request(grown(exchanges, is_named=is_named), options={"num_predict": 300}))
        assert (answer.status_code, answer.headers["x-context-proxy-attempts"]) == (200, "1"), answer.text
    assert model.cuts == 0
    assert len(model.loads) == 1, "the model is loaded once"
    last = sent(world)
    assert last[:2] == TASK
    assert sum("earlier messages" in found.get("content", "") for found in last) == 1
    assert last[-1] == grown(40, is_named=is_named)[-1]
    bodies = [received.body.partition(b'"tools"')[0][:-3] for received in world.upstream.sent]
    cuts = sum(not after.startswith(before) for before, after in itertools.pairwise(bodies))
    assert 0 < cuts < 12
    answer_to(world, request(grown(40, is_named=is_named), options={"num_predict": 300}), proxy=1)
    assert world.upstream.sent[-1].body == world.upstream.sent[-2].body, "so does a replica"


def test_a_text_longer_than_the_window_is_cut_by_the_proxy_and_not_by_the_server(ollama: Build) -> None:
    """No refusal would say that the estimate was right."""
    server = OllamaServer(allocates=8_192)
    world = ollama(server)
    answer_to(world, request([{"role": "user", "content": f"Why is it red?\n{long_text(1_500)}"}]))
    assert server.cuts == 0
    assert sent(world)[0]["content"].startswith("Why is it red?\n")


def test_a_window_that_a_request_states_binds_it_and_no_other(ollama: Build) -> None:
    model = OllamaServer(allocates=65_536)
    world = ollama(model)
    for options, is_cut in (({"num_ctx": 6_000}, True), ({}, False), ({"num_ctx": 6_000, "num_predict": 300}, True)):
        model.loaded.clear()
        assert answer_to(world, request(grown(20), options=options)).status_code == 200
        assert (len(sent(world)) < len(grown(20))) == is_cut
        assert json.loads(world.upstream.last.body)["options"] == options
    assert model.cuts == 0


def test_a_model_is_not_loaded_to_query_a_window_that_the_request_states(ollama: Build) -> None:
    model = OllamaServer(models={"m": Model(trained=9_000)}, allocates=65_536)
    world = ollama(model)
    answer_to(world, request(grown(30), options={"num_ctx": 20_000}))
    assert model.loads == [("m", 9_000)], "no more than it was trained for"
    assert "POST /api/show" in model.others
    assert "POST /api/generate" not in model.others
    assert model.cuts == 0
    assert tokens_of(sent(world), json.dumps(TOOLS)) < 9_000


def test_a_model_elsewhere_ignores_the_window_that_a_request_states(ollama: Build) -> None:
    model = OllamaServer(models={"m:cloud": Model(remote_window=60_000)})
    world = ollama(model)
    answer_to(world, request(grown(20), model="m:cloud", options={"num_ctx": 4_096}))
    assert sent(world) == grown(20)
    for exchanges in (60, 100):
        answer = answer_to(world, request(grown(exchanges), model="m:cloud", options={"num_ctx": 4_096}))
        assert answer.headers["x-context-proxy-attempts"] == "1"


def test_what_a_modelfile_puts_before_the_messages_counts(ollama: Build) -> None:
    for system in ("", long_text(200)):
        server = OllamaServer(models={"m": Model(num_ctx=8_192, system=system)})
        answer = answer_to(ollama(server), request(grown(30)[1:]))
        planned = re.search("after=([0-9]+)", answer.headers["x-context-proxy-tokens"])
        assert planned is not None
        assert int(planned[1]) == pytest.approx(server.chats[0].prompt_tokens, rel=0.02)
        assert not server.chats[0].was_cut


def test_what_a_model_reads_is_what_its_server_says(ollama: Build) -> None:
    """The name is one that no catalogue knows."""
    server = OllamaServer(models={"blind": Model(capabilities=("completion",)), "seeing": Model()}, allocates=32_768)
    world = ollama(server)
    payload = base64.b64encode(PNG).decode()
    for model in ("blind", "seeing"):
        shown = {"role": "user", "content": "x " * 5_000, "images": [payload]}
        answer_to(world, request([TASK[0], shown], model=model, tools=[]))
        assert (payload in world.upstream.last.body.decode()) == (model == "seeing")


def test_many_small_images_are_never_cut_by_the_server(ollama: Build) -> None:
    """Each counts 768 tokens when the server cuts, however small it is."""
    server = OllamaServer(models={"m": Model(num_ctx=8_192)})
    world = ollama(server)
    payload = base64.b64encode(PNG).decode()
    turns = [
        [
            {"role": "user", "content": f"{n} {LONG[:700]}", "images": [payload]},
            {"role": "assistant", "content": "Yes."},
        ]
        for n in range(20)
    ]
    messages = [TASK[0], *itertools.chain(*turns), {"role": "user", "content": "Compare."}]
    answer_to(world, request(messages, tools=[]))
    assert server.cuts == 0
    assert sum(len(one.get("images", ())) for one in sent(world)) < 11


def test_a_reply_limit_that_leaves_no_room_is_lowered_where_it_is(ollama: Build) -> None:
    world = ollama()
    options = {"num_ctx": 6_000, "num_predict": 9_000, "temperature": None}
    answer_to(world, request(TASK, options=options))
    found = json.loads(world.upstream.last.body)["options"]
    assert found.pop("num_predict") < 6_000
    assert found == {"num_ctx": 6_000, "temperature": None}


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m"},
        {"model": "m", "messages": []},
        {"model": "m", "messages": [], "tools": TOOLS, "options": {"num_ctx": 9_000}},
        {"model": "m", "messages": [], "keep_alive": 0},
    ],
)
def test_loading_and_unloading_pass_unchanged(body: Json, ollama: Build) -> None:
    world = ollama()
    answer = answer_to(world, body)
    assert answer_objects(answer)[0]["done_reason"] in ("load", "unload")
    assert [json.loads(one.body) for one in world.upstream.sent] == [body]


@STREAMED
@pytest.mark.parametrize("model", [Model(is_native=True), Model(shifts=False), Model(remote_window=8_000)])
def test_a_refusal_is_cured_unseen(stream: bool, model: Model, ollama: Build) -> None:
    server = OllamaServer(models={"m": model}, allocates=8_000, replies=[Completion("Here I am.")])
    world = ollama(server, models=[{"match": "*", "context_window": 20_000}])
    text = long_text(900)
    messages = [*TASK[:1], {"role": "user", "content": f"Look at this.\n{text}"}]
    answer = answer_to(world, request(messages, stream=stream))
    assert (answer.status_code, words(answer)) == (200, "Here I am.")
    assert answer.headers["x-context-proxy-attempts"] == "2"
    assert "error" not in answer.text


@STREAMED
def test_a_history_without_a_user_is_the_disguise_of_one_that_is_too_long(stream: bool, ollama: Build) -> None:
    server = OllamaServer(models={"m": Model(needs_user=True)}, allocates=8_000)
    world = ollama(server, models=[{"match": "*", "context_window": 20_000}])
    answer = answer_to(world, request(grown(25), stream=stream))
    assert (answer.status_code, words(answer)) == (200, "Done.")
    assert answer.headers["x-context-proxy-attempts"] == "2"


def test_an_answer_to_a_silently_cut_prompt_is_requested_again(ollama: Build) -> None:
    server = OllamaServer(allocates=8_192, replies=[Completion("I made this up."), Completion("It is 42.")])
    world = ollama(server, models=[{"match": "*", "context_window": 40_000}])
    messages = [*TASK, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": long_text(1_500)}]
    answer = answer_to(world, request(messages))
    assert words(answer) == "It is 42."
    assert [chat.was_cut for chat in server.chats] == [True, False]
    assert world.log("upstream_truncated_silently")


@STREAMED
@pytest.mark.parametrize("forbids", [False, True])
def test_a_server_can_be_made_to_refuse_instead_of_cutting(forbids: bool, stream: bool, ollama: Build) -> None:
    """Its tokens are half as long as the proxy takes them for, so its count of what it has left looks right."""
    server = OllamaServer(allocates=8_192, count=lambda text: 2 * COUNTER.count(text))
    world = ollama(server, overflow={"forbid_silent_cuts": forbids}, learning={"enabled": False})
    for _ in range(2):
        answer = answer_to(world, request(grown(33), stream=stream))
        assert (answer.status_code, words(answer)) == (200, "Done.")
        assert answer.headers["x-context-proxy-attempts"] == ("2" if forbids else "1")
        assert server.chats[-1].was_cut != forbids
    assert json.loads(world.upstream.last.body).get("truncate") == (False if forbids else None)
    answer_to(world, request(grown(33), stream=stream, truncate=True))
    assert json.loads(world.upstream.last.body)["truncate"] is True
    answer_to(world, request(TASK, stream=stream, tools=[]))
    assert "truncate" not in json.loads(world.upstream.last.body), "as it came"


def test_required_content_that_never_fits_is_refused_with_a_plain_text_error(ollama: Build) -> None:
    world = ollama(models=[{"match": "gpt-4o", "context_window": 8_000}])
    answer = answer_to(world, request([{"role": "system", "content": LONG}, TASK[1]], model="gpt-4o"))
    assert answer.status_code == 400
    assert "messages[0] (system" in answer.json()["error"]
    assert world.upstream.sent == []


def test_an_error_in_the_middle_is_a_line_and_the_last_one(ollama: Build) -> None:
    world = ollama(
        OllamaServer(replies=[Completion("Half a", error="an error was encountered while running the model")])
    )
    answer = answer_to(world, request(TASK, stream=True))
    assert (answer.status_code, words(answer)) == (200, "Half a")
    assert answer_objects(answer)[-1] == {"error": "an error was encountered while running the model"}


@pytest.mark.parametrize("reads", [["text"], ["text", "vision"]], ids=["blind", "seeing"])
def test_an_image_is_shown_where_the_model_reads_it_or_described(reads: list[str], ollama: Build) -> None:
    world = ollama(OllamaServer(allocates=32_768), models=[{"match": "*", "input": reads}])
    payload = base64.b64encode(PNG).decode()
    shown = {"role": "user", "content": "and this", "images": [payload]}
    messages = [*TASK, call("fetch"), {**result("a screenshot"), "images": [payload]}, shown]
    assert answer_to(world, request(messages)).status_code == 200
    found = sent(world)
    if "vision" in reads:
        assert [one["role"] for one in found if one.get("images")] == ["user", "user"]
        assert found[-1] == shown
        assert all(one["images"] == [payload] for one in found if one.get("images"))
    else:
        assert payload not in world.upstream.last.body.decode()
        assert PNG in world.kept.values()
        assert "[cannot read]" in found[3]["content"]
        assert "images" not in found[3]
    assert found[3]["tool_name"] == "fetch"


# The rest of its API


def recognised(world: World, proxy: int = 0) -> str:
    """The address of a proxy once it has asked its upstreams what they are."""
    root = world.proxies[proxy].removesuffix("/v1")
    wait_until(lambda: world.client.get(root).text == "Ollama is running")
    return root


def test_clients_find_it_at_the_root_and_browsers_the_dashboard(ollama: Build) -> None:
    world = ollama()
    answer_to(world, request(TASK, options={"num_predict": 9}))
    root = recognised(world)
    found = world.client.get(root)
    assert (found.status_code, found.text) == (200, "Ollama is running")
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    head = world.client.head(root)
    assert (head.status_code, head.text) == (200, "")
    assert "<html" in world.client.get(root, headers={"accept": "text/html,*/*"}).text


def test_a_server_that_comes_up_later_is_found_by_those_who_look_for_it(
    ollama: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look at the root, or ask for the models, before their first chat."""
    monkeypatch.setattr("proxy.shell.models.discovery.RETRY_SECONDS", 0.05)
    is_up: list[bool] = []
    server = OllamaServer()

    around, server.beside = server.beside, lambda *asked: around(*asked) if is_up else Answer(503, b"")
    world = ollama()
    with listening(server) as address:
        settings = Settings(upstream={"base_url": address}, data_dir=world.folder)
        with serving(create_app(settings)) as proxy:
            world.proxies.append(proxy)
            root = proxy.removesuffix("/v1")
            assert world.client.get(f"{root}/api/tags").status_code == 503
            is_up.append(True)
            assert recognised(world, 1) == root


def test_the_root_is_the_dashboard_where_no_upstream_is_an_ollama(build: Build) -> None:
    world = build()
    assert "<html" in world.client.get(world.proxies[0].removesuffix("/v1")).text


def test_other_paths_pass_byte_for_byte(ollama: Build) -> None:
    server = OllamaServer()
    world = ollama(server)
    root = world.proxies[0].removesuffix("/v1")
    assert world.client.get(f"{root}/api/tags").json() == {"models": [{"name": "m", "model": "m"}]}
    blob = bytes(range(256)) * 40_000
    answer = world.client.post(f"{root}/api/blobs/sha256:0a", content=blob)
    assert answer.text == '{"status":"pulling"}\n{"status":"success"}\n'
    assert server.uploads == [blob]
    missing = world.client.get(f"{root}/api/nothing")
    assert (missing.status_code, missing.json()) == (404, {"error": "404 page not found"})


@pytest.mark.parametrize("stated", [{"wire": "ollama"}, {}], ids=["stated", "recognised"])
def test_of_several_upstreams_the_first_that_is_an_ollama_gets_what_is_beside_its_chats(
    stated: dict[str, str], ollama: Build
) -> None:
    server = OllamaServer()
    world = ollama(server)
    own = world.upstream
    with listening(own) as address:
        upstreams = [{"base_url": "http://127.0.0.1:9/v1", "match": "x"}, {"base_url": address, "match": "m", **stated}]
        settings = Settings(upstream={"base_url": "http://127.0.0.1:9/v1"}, upstreams=upstreams, data_dir=world.folder)
        with serving(create_app(settings)) as proxy:
            world.proxies.append(proxy)
            assert words(answer_to(world, request(TASK), proxy=1)) == "Done."
            root = recognised(world, 1)
            assert world.client.get(f"{root}/api/tags").json()["models"]
            assert world.client.get(root).text == "Ollama is running"


# read_artifact


def learnt(ollama: Build, **stated: Any) -> tuple[World, OllamaServer, str]:
    """A world, its server, and the name of the artifact in it."""
    server = OllamaServer(allocates=64_000, **stated)
    world = ollama(server)
    answer_to(world, request(one_call()))
    world.upstream.sent.clear()
    server.chats.clear()
    return world, server, next(iter(world.kept))


def reads(name: str, **parameters: str) -> tuple[str, Json]:
    return "read_artifact", {"id": name, **parameters}


@STREAMED
@pytest.mark.parametrize("has_ids", [True, False], ids=["ids", "none"])
def test_a_call_of_our_tool_is_answered_on_the_way(stream: bool, has_ids: bool, ollama: Build) -> None:
    world, server, name = learnt(ollama, has_ids=has_ids)
    server.replies = [
        Completion("Let me look.", "Hm.", [reads(name, lines="2500-2502")]),
        Completion("It is 42.", "Ah."),
    ]
    answer = answer_to(world, request(one_call(), stream=stream))
    assert words(answer) == "Let me look.\n\nIt is 42."
    assert "read_artifact" not in answer.text
    thought = "".join(line["message"].get("thinking", "") for line in answer_objects(answer))
    assert thought == "Hm.\n\nAh."
    first, second = world.upstream.sent
    assert [tool["function"]["name"] for tool in json.loads(first.body)["tools"]] == ["fetch", "look", "read_artifact"]
    made, page = sent(world)[-2:]
    assert (made["content"], made["thinking"]) == ("Let me look.", "Hm.")
    assert made["tool_calls"][0]["function"]["arguments"] == {"id": name, "lines": "2500-2502"}
    assert (page["role"], page["tool_name"]) == ("tool", "read_artifact")
    assert page.get("tool_call_id") == made["tool_calls"][0].get("id")
    assert page["content"].rstrip("\n").endswith("".join(LONG.splitlines(keepends=True)[2499:2502]).rstrip("\n"))
    done = world.logged("request_done", 2)[-1]
    assert (done["retrieval_rounds"], done["outcome"]) == (1, "answered")
    last = answer_objects(answer)[-1]
    assert last["prompt_eval_count"] == server.chats[0].prompt_tokens, "of the prompt that the client has"
    assert last["total_duration"] == 1_800
    assert done["usage"]["prompt_tokens"] == sum(chat.prompt_tokens for chat in server.chats)
    assert last["eval_count"] == done["usage"]["completion_tokens"]
    assert second.body.startswith(first.body.partition(b"]")[0])


@STREAMED
@pytest.mark.parametrize("has_ids", [True, False], ids=["ids", "none"])
@pytest.mark.parametrize("is_first", [True, False], ids=["ours_first", "ours_last"])
def test_what_was_called_beside_a_call_of_the_client_is_read_in_the_next_turn(
    is_first: bool, has_ids: bool, stream: bool, ollama: Build
) -> None:
    world, server, name = learnt(ollama, has_ids=has_ids)
    mixed = [reads(name, lines="2507-2508"), ("fetch", {"url": "x"})][:: 1 if is_first else -1]
    server.replies = [Completion("Both.", calls=mixed), Completion("I see.")]
    answer = answer_to(world, request(one_call(), stream=stream))
    shown = [one for line in answer_objects(answer) for one in line["message"].get("tool_calls", ())]
    assert [(one["function"]["name"], one["function"]["index"]) for one in shown if stream] in ([("fetch", 0)], [])
    assert [one["function"]["name"] for one in shown] == ["fetch"]
    assert words(answer) == "Both."
    mine = {
        "role": "assistant",
        "content": "Both.",
        "tool_calls": [{"function": {"name": "fetch", "arguments": {"url": "x"}}}],
    }
    back = [*one_call(), mine, {"role": "tool", "content": "a page"}]
    assert words(answer_to(world, request(back))) == "I see."
    *_, whole, result, page = sent(world)
    assert (whole, result, page["role"]) == (mine, back[-1], "user")
    assert "line 2506: " in page["content"]


@STREAMED
def test_what_the_server_counted_is_recorded_where_our_tool_is_offered(stream: bool, ollama: Build) -> None:
    world = ollama(server := OllamaServer())
    answer_to(world, request(one_call(), stream=stream))
    done = world.logged("request_done")[0]
    assert done["edits"]["retrieval_tool"] == 1
    assert (done["prompt_tokens"], done["reply_tokens"]) == (server.chats[0].prompt_tokens, len("Done."))


def test_a_model_without_tools_is_not_offered_ours(ollama: Build) -> None:
    server = OllamaServer(models={"m": Model(capabilities=("completion",))}, allocates=64_000)
    world = ollama(server)
    answer = answer_to(world, {"model": "m", "stream": False, "messages": one_call()})
    assert answer.status_code == 200
    assert b"read_artifact" not in world.upstream.last.body
    refused = answer_to(world, request(one_call()))
    assert (refused.status_code, refused.json()) == (400, {"error": '"m" does not support tools'})


def test_the_server_counts_what_the_proxy_expects() -> None:
    """Otherwise the other tests prove nothing."""
    server = OllamaServer(allocates=4_096)
    server.chat(request(grown(30)))
    assert server.chats[0].was_cut
    assert TASK[1] not in server.chats[0].seen, "the task goes first"
    assert tokens_of(server.chats[0].seen, json.dumps(TOOLS)) <= 4_096
    server.chat(request([{"role": "user", "content": LONG}]))
    assert server.chats[1].prompt_tokens == 2_051
