"""Agents of the Responses API: every request is answered, in the API's own words, and what is sent is valid."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from support import messages_journey
from support.journey import World, long_text
from support.media_samples import PNG
from support.responses_journey import PATH, request, results_of, work
from support.upstream import Answer, Over, OverAtStep, ScriptedModel, Sent, as_json, messages, responses, worker

WINDOW = 8_000
PNG_BASE64 = base64.b64encode(PNG).decode()
THINKS = {"include": ["reasoning.encrypted_content"]}


def log_of(turn: int) -> str:
    return long_text(60 + turn % 7 * 20, f"build-{turn}")


def inputs(world: World) -> list[list[dict[str, Any]]]:
    return [json.loads(received.body)["input"] for received in world.upstream.sent]


@pytest.mark.parametrize("stream", [False, True])
def test_forty_turns_over_a_small_window_are_all_answered_and_valid(build: Any, stream: bool) -> None:
    server = worker(Over("prompt", WINDOW, "openai"))
    world = build(WINDOW, behind=server)
    items = work(world, 40, log_of, stream=stream, **THINKS)
    assert server.complaints == []
    assert server.refusals == 0
    assert len(server.sent) == 40
    assert len(json.dumps(items)) > 5 * WINDOW * 4
    for sent in inputs(world):
        assert sent[:1] == items[:1]
        assert sent[1]["content"].endswith("Read all.")
    assert "earlier messages" in world.upstream.last.body.decode()


FORMS = [
    *(("messages", form) for form in sorted(messages.REFUSALS.keys() - {"413 bytes", "ours, no code", "kimi"})),
    *(("responses", form) for form in sorted(responses.REFUSALS)),
]


@pytest.mark.parametrize(("api", "form"), FORMS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_in_any_form_is_healed_by_one_second_send(build: Any, api: str, form: str, stream: bool) -> None:
    server = worker(OverAtStep(form, 4, once=True))
    world = build(1_000_000, behind=server, defaults={})
    if api == "messages":
        messages_journey.work(world, 6, log_of, stream=stream)
    else:
        work(world, 6, log_of, stream=stream, **THINKS)
    assert (server.complaints, server.refusals, len(server.sent)) == ([], 1, 7)


@pytest.mark.parametrize("form", ["openai", "failed event", "vllm"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_final_refusal_uses_the_words_that_codex_recognises(build: Any, form: str, stream: bool) -> None:
    server = worker(Over("prompt", 50, form))
    world = build(1_000_000, behind=server, defaults={})
    answer = world.ask(request([{"role": "user", "content": "Read all. " * 200}], stream=stream), path=PATH)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert {name: error[name] for name in ("type", "param", "code")} == {
        "type": "invalid_request_error",
        "param": "input",
        "code": "context_length_exceeded",
    }
    assert len(server.sent) == 2


def test_what_needs_nothing_is_forwarded_as_the_very_bytes(build: Any) -> None:
    world = build(128_000, behind=worker())
    body = b'{ "model":"m", "input" : [ {"role":"user", "content":"hi"} ,{"id":"rs_1","odd":1.0} ], "unknown":[ 1 ] }'
    for text in (body, b'{"input": "hi",  "model":"m","max_output_tokens": 9}'):
        world.ask(text, path=PATH)
        assert world.upstream.last.body == text


class TestTheUpstreamHoldsTheConversation:
    def chain(self, world: World, turns: int, text: str) -> dict[str, Any]:
        reply = world.ask(chained("Read all."), path=PATH).json()
        for _ in range(turns):
            answer = world.ask(chained(results_of(reply["output"], text), reply["id"]), path=PATH)
            assert answer.status_code == 200, answer.text
            reply = answer.json()
        return reply

    def test_nothing_is_left_out_and_only_what_is_new_is_cut(self, build: Any) -> None:
        world = build(6_000, behind=worker())
        self.chain(world, 6, long_text(3_000))
        for sent in inputs(world)[1:]:
            assert {item["type"] for item in sent} == {"function_call_output"}
            assert all("[context-proxy: " in item["output"] for item in sent)

    def test_a_refusal_is_answered_by_asking_the_upstream_to_cut_once(self, build: Any) -> None:
        server = worker(OverAtStep("openai", 4, is_cut_by="truncation"))
        world = build(1_000_000, behind=server, defaults={})
        self.chain(world, 6, long_text(100))
        bodies = [json.loads(received.body) for received in world.upstream.sent]
        assert [body.get("truncation") for body in bodies[-8:]].count("auto") >= 3
        assert server.complaints == []
        (line, *_) = [line for line in world.log("request_done") if line.get("attempts") == 2]
        assert line["edits"]["upstream_truncation"] == 1

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_conversation_that_has_overflowed_is_refused_once_and_not_in_every_turn(
        self, build: Any, stream: bool
    ) -> None:
        server = worker(OverAtStep("openai", 4, is_cut_by="truncation"))
        world = build(1_000_000, behind=server, defaults={})
        reply, attempts, edits = None, [], []
        for _ in range(8):
            items = results_of(reply["output"], long_text(100)) if reply else "Read all."
            answer = world.ask(chained(items, reply and reply["id"]) | {"stream": stream}, path=PATH)
            assert answer.status_code == 200, answer.text
            reply = ended_with(answer.text) if stream else answer.json()
            attempts.append(answer.headers["x-context-proxy-attempts"])
            edits.append(answer.headers.get("x-context-proxy-edits"))
        assert attempts == ["1", "1", "1", "2", "1", "1", "1", "1"]
        assert edits == [None] * 3 + ["upstream_truncation=1"] * 5
        assert server.refusals == 1
        assert server.complaints == []
        last = world.log("request_done")[-1]
        assert (last.get("attempts", 1), last["edits"]) == (1, {"upstream_truncation": 1})

    def test_an_upstream_that_refuses_our_first_change_gets_the_original_request(self, build: Any) -> None:
        answers = {"refuses": False}

        def changes_its_mind(request: Sent) -> Answer:
            truncates = b'"auto"' in request.body
            message = "Your input exceeds the context window of this model." if not truncates else "No such member."
            found: Any = {"error": {"message": message, "type": "invalid_request_error"}}
            if truncates and not answers["refuses"]:
                found = {"id": "resp_2", "object": "response", "status": "completed", "output": [{"type": "message"}]}
            return as_json(found, 400 if "error" in found else 200)

        server = ScriptedModel([changes_its_mind], held={"resp_1": [], "resp_2": []})
        world = build(1_000_000, behind=server, defaults={})
        assert world.ask(chained("Go on.", "resp_1"), path=PATH).status_code == 200
        answers["refuses"] = True
        last = world.ask(chained("Go on.", "resp_2"), path=PATH)
        assert (last.status_code, last.json()["error"]["code"]) == (400, "context_length_exceeded")
        truncates = [json.loads(one.body).get("truncation") for one in world.upstream.sent]
        assert truncates == [None, "auto", "auto", None]

    def test_an_upstream_that_does_not_cut_ends_in_the_canonical_error(self, build: Any) -> None:
        server = worker(Over("prompt", 900, "openai"))
        world = build(1_000_000, behind=server, defaults={})
        reply = world.ask(chained("Read all."), path=PATH).json()
        refused = world.ask(chained(results_of(reply["output"], long_text(100)), reply["id"]), path=PATH)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert "upstream_truncation=1" in refused.headers["x-context-proxy-edits"]
        assert len(world.upstream.sent) == 3

    def test_nothing_is_learned_from_what_the_upstream_counts(self, build: Any) -> None:
        world = build(128_000, behind=worker())
        self.chain(world, 8, long_text(300))
        assert world.log("lesson_learned") == []


def ended_with(text: str) -> dict[str, Any]:
    """The response in the last event of a stream."""
    found: dict[str, Any] = json.loads(text.rstrip().rpartition("data: ")[2])["response"]
    return found


def chained(items: object, response: str | None = None) -> dict[str, Any]:
    members = {} if response is None else {"previous_response_id": response}
    return request(items, **members) | {"store": True}


def test_a_model_without_eyes_gets_a_description_in_its_place(build: Any) -> None:
    world = build(128_000, behind=worker(), models=[{"match": "m", "input": ["text"]}])
    picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG_BASE64}"}
    call = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": [picture]}
    world.ask(request([{"role": "user", "content": [picture]}, call, result]), path=PATH)
    sent = inputs(world)[-1]
    assert sent[0]["content"][0]["type"] == sent[2]["output"][0]["type"] == "input_text"
    assert "[cannot read]" in sent[2]["output"][0]["text"]
    assert PNG in world.kept.values()
