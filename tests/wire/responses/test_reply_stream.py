from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.answer_shapes import cut
from support.upstream.replies import Call, Reply, Usage
from support.upstream.responses import answered

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.wire.responses import ReplyStream

READS = Call(RETRIEVAL_TOOL, {"id": "tool_x_0123456789abcdef.txt"})
FETCHES = Call("fetch", {"n": 1})
EXECUTES = Call("exec", "ls")
REPLIES = st.builds(
    Reply,
    st.sampled_from(["", "Hello.", "Long words. " * 9]),
    st.lists(st.sampled_from([READS, FETCHES, EXECUTES]), max_size=4),
    st.sampled_from(["", "hm"]),
)
LAST = REPLIES.filter(lambda reply: READS not in reply.calls and (reply.text or reply.calls))
PLACES = st.lists(st.integers(0, 12_000), max_size=6)


def came_of(reply, number=1, prompt=100):
    body = {"model": "m", "stream": True, "include": ["reasoning.encrypted_content"], "store": False}
    return answered(body, reply, Usage(prompt, 0, 10), number)[0].body


def output_of(reply, number=1):
    return answered({"include": ["reasoning.encrypted_content"]}, reply, Usage(0, 0, 0), number)[1]


def fed(stream, came, places=()):
    return b"".join(stream.feed(piece) for piece in cut(came, places))


def limit(monkeypatch, most):
    for module in ("replies", "responses.replies"):
        monkeypatch.setattr(f"proxy.wire.{module}.MAX_KEPT_BYTES", most)


def written(event):
    return f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


def is_own(item):
    return item.get("name") == RETRIEVAL_TOOL


def understood(reported):
    """The response of a stream as a strict client reads it: events and items are numbered without a gap, one
    beginning, one end, in which all items stand."""
    events = [json.loads(one.split(b"data: ")[1]) for one in reported.split(b"\n\n") if one]
    assert [event["type"] for event in events] == [
        one.split(b"\n")[0].removeprefix(b"event: ").decode() for one in reported.split(b"\n\n") if one
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    names = [event["type"] for event in events]
    assert names.count("response.created") == 1
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    assert names.index("response.completed") == len(names) - 1
    for kind in ("added", "done"):
        found = [event for event in events if event["type"] == f"response.output_item.{kind}"]
        assert [event["output_index"] for event in found] == list(range(len(found)))
    response = events[-1]["response"]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == response["output"]
    items = [item["id"] for item in response["output"]]
    for event in events:
        assert "item_id" not in event or items[event["output_index"]] == event["item_id"]
    return response


@given(REPLIES, PLACES)
def test_the_client_gets_its_own_items_and_we_get_our_calls(reply, places):
    stream = ReplyStream()
    reported = fed(stream, came_of(reply), places)
    message, output = stream.end(), output_of(reply)
    assert (message is not None) == (READS in reply.calls)
    if message is not None:
        assert [call.id for call in message.own] == [item["call_id"] for item in output if is_own(item)]
        assert json.loads(b"[" + message.message + b"]") == output
    assert understood(reported + stream.last_words())["output"] == [item for item in output if not is_own(item)]


@given(st.lists(REPLIES, max_size=3), LAST, PLACES)
def test_rounds_are_one_stream_with_the_id_of_the_first(replies, last, places):
    stream, reported, wanted = ReplyStream(), b"", []
    rounds = [*(Reply(one.text, (*one.calls, READS), one.thought) for one in replies), last]
    for number, reply in enumerate(rounds, 1):
        reported += fed(stream, came_of(reply, number), places)
        wanted += [item for item in output_of(reply, number) if not is_own(item)]
        if number < len(rounds):
            assert stream.end() is not None
            stream.next_round()
    assert stream.end() is None
    response = understood(reported + stream.last_words())
    assert response["output"] == wanted
    assert response["id"] == f"resp_{1:024d}"


@pytest.mark.parametrize("texts", [("", ""), ("So.", ""), ("", "So."), ("So.", "So.")])
def test_the_word_that_ends_a_stopped_model_is_numbered_as_all_others(texts):
    stream, reported = ReplyStream(), b""
    for number, text in enumerate(texts, 1):
        reported += fed(stream, came_of(Reply(text, (READS,)), number))
        ending = stream.stopped("Stopped.") if stream.end() and number == 2 else b""
        stream.next_round()
    output = understood(reported + ending)["output"]
    assert [item["content"][0]["text"] for item in output] == [*filter(None, texts), "Stopped."]


def test_what_ends_a_stream_waits_until_it_is_known_whether_another_round_follows():
    stream = ReplyStream()
    reported = fed(stream, came_of(Reply("Hello.", (READS,))))
    assert b"response.completed" not in reported
    assert b"Hello." in reported
    assert b"response.completed" in stream.last_words()


def test_events_that_begin_or_end_no_item_pass_at_once():
    stream, came = ReplyStream(), came_of(Reply("Hello."))
    events = [one + b"\n\n" for one in came.split(b"\n\n") if one]
    assert list(map(stream.feed, events)) == events


def test_an_item_without_an_index_is_the_client_s_and_in_no_list():
    stream = ReplyStream()
    call, end, rest = came_of(Reply("", (READS,))).partition(b"event: response.completed")
    odd = written({"type": "response.output_item.done", "item": {"type": "message"}})
    stream.feed(call)
    assert stream.feed(odd) == odd
    stream.feed(end + rest)
    assert stream.end() is not None
    assert b'"output":[]' in stream.last_words()


def test_every_event_that_ends_a_stream_is_recognised():
    stream = ReplyStream()
    failed = written({"type": "response.failed", "response": {"error": {"code": "server_error"}}, "sequence_number": 3})
    reported = fed(stream, came_of(Reply("", (READS,))) + written({"type": "error", "sequence_number": 2}) + failed)
    assert stream.end() is None
    reported += stream.last_words()
    assert reported.count(b"event: error\n") == reported.count(b"event: response.failed\n") == 1


@pytest.mark.parametrize("last", ["", "So."])
@pytest.mark.parametrize("lists", [True, False])
def test_the_end_lists_what_the_client_has_seen_whether_its_server_lists_it_or_not(last, lists):
    came, stream = came_of(Reply(last), 2), ReplyStream()
    if not lists:
        *_, event, _ = came.split(b"\n\n")
        ended = json.loads(event.split(b"data: ")[1])
        ended["response"]["output"] = []
        came = came.replace(event, b"event: response.completed\ndata: " + json.dumps(ended).encode())
    reported = fed(stream, came_of(Reply("Let me look.", (READS,))))
    stream.next_round()
    reported += fed(stream, came)
    output = understood(reported + stream.last_words())["output"]
    assert [item["content"][0]["text"] for item in output] == ["Let me look.", *([last] if last else [])]


def test_an_end_without_a_list_gets_none():
    stream = ReplyStream()
    fed(stream, came_of(Reply("Let me look.", (READS,))))
    stream.next_round()
    stream.feed(b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed"}}\n\n')
    assert json.loads(stream.last_words().split(b"data: ")[1])["response"] == {"status": "failed"}


def test_a_comment_passes_in_every_round():
    stream = ReplyStream()
    fed(stream, came_of(Reply("", (READS,))))
    assert stream.feed(b": still here\n\n") == b": still here\n\n"
    assert stream.feed(b"data: [DONE]\n\n") == b"data: [DONE]\n\n"


def test_an_event_without_end_passes_as_it_comes(monkeypatch):
    limit(monkeypatch, 1_000)
    stream = ReplyStream()
    piece = b"data: " + b"x" * 1_001
    assert stream.feed(piece) == piece
    assert stream.feed(b"more") == b"more"
    assert stream.end() is None
    assert stream.last_words() == b""


def test_a_stream_that_breaks_off_in_our_call_is_forwarded_unchanged():
    came = came_of(Reply("Let me look.", (READS,)))
    stream = ReplyStream()
    reported = stream.feed(came[: came.index(b"response.completed")])
    assert stream.end() is None
    assert b"read_artifact" not in reported + stream.last_words()


def test_a_last_event_whose_end_may_not_be_complete_is_read_all_the_same():
    stream = ReplyStream()
    reported = fed(stream, came_of(Reply("Let me look.", (READS,))).replace(b"\n", b"\r"))
    assert stream.end() is not None
    assert RETRIEVAL_TOOL.encode() not in reported + stream.last_words()


def test_half_an_event_at_the_end_is_the_client_s():
    stream = ReplyStream()
    reported = stream.feed(b'data: {"type": "response.out')
    assert stream.end() is None
    assert reported + stream.last_words() == b'data: {"type": "response.out'


def test_an_own_call_that_never_ended_gets_no_answer():
    came = came_of(Reply("", (READS,)))
    done = next(one for one in came.split(b"\n\n") if b"response.output_item.done" in one)
    stream = ReplyStream()
    fed(stream, came.replace(done + b"\n\n", b""))
    assert stream.end() is None


def test_a_call_whose_beginning_the_client_has_seen_stays_the_clients():
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "arguments": "{}", "status": "completed"}
    begun, done = {**call, "name": ""}, {**call, "name": RETRIEVAL_TOOL}
    came = (
        written({"type": "response.output_item.added", "output_index": 0, "item": begun, "sequence_number": 0})
        + written({"type": "response.output_item.done", "output_index": 0, "item": done, "sequence_number": 1})
        + written({"type": "response.completed", "response": {"store": False, "output": [done]}, "sequence_number": 2})
    )
    stream = ReplyStream()
    assert fed(stream, came) == came
    assert stream.end() is None
