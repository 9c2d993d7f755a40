"""The same request in each API has the same words, and its response is one that the proxy knows as such."""

import json
from itertools import islice
from typing import Any

import pytest
from support import valid_messages, valid_responses

from proxy.wire import Wire
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES as MESSAGES_WIRE
from proxy.wire.responses import RESPONSES as RESPONSES_WIRE
from tools.bench.apis import APIS, CHAT, MESSAGES, RESPONSES, TEXT, Api
from tools.bench.bodies import WORKLOADS, chat, new_conversations

_CHECKSUM = "fp_0123abcd"
_WIRES: list[tuple[Api, Wire]] = [(CHAT, CHAT_COMPLETIONS), (MESSAGES, MESSAGES_WIRE), (RESPONSES, RESPONSES_WIRE)]


def _conversation():
    found: dict[str, Any] = json.loads(next(new_conversations(30_000, model="m", seed=1)))
    return found


@pytest.mark.parametrize(("api", "valid"), [(MESSAGES, valid_messages), (RESPONSES, valid_responses)])
def test_a_translated_conversation_is_valid_and_has_the_same_words(api, valid):
    request = api.request(_conversation())
    assert valid.complaints(request) == []
    kept = json.dumps(request)
    for message in _conversation()["messages"]:
        assert json.dumps(message["content"])[1:-1] in kept


@pytest.mark.parametrize(("api", "wire"), _WIRES)
def test_the_proxy_sees_as_many_messages_in_each_api(api, wire):
    request = wire.parse(json.dumps(api.request(_conversation())).encode())
    head = 1 if api is MESSAGES else 0  # there the system text is no message
    assert len(request.conversation) == len(_conversation()["messages"]) - head
    assert len(wire.tool_names(wire.tools(request))) == 3
    assert (len(wire.instructions(request.members)) > 1_000) == (api is MESSAGES)


@pytest.mark.parametrize("api", APIS.values())
def test_a_stream_is_requested_with_its_number_of_words(api):
    request = api.request(json.loads(next(chat(100, model="m", events=7, seed=1))))
    assert request["stream"] is True
    assert 7 in (request.get("max_tokens"), request.get("max_output_tokens"))


@pytest.mark.parametrize(("api", "wire"), _WIRES)
def test_the_proxy_takes_each_response_for_a_whole_one(api, wire):
    whole, stream = api.response(_CHECKSUM), api.events(_CHECKSUM, 5)
    assert TEXT in json.dumps(json.loads(whole))
    assert wire.is_plainly_a_reply(whole)
    assert wire.counted(whole) is not None
    assert wire.is_plainly_a_reply(stream[0])
    assert wire.is_complete(b"".join(stream))
    assert not wire.is_complete(b"".join(stream[:-1]))
    assert [b"word%05d " % number in write for number, write in enumerate(stream)] == [True] * 5 + [False]
    assert all(_CHECKSUM.encode() in one for one in (whole, stream[0]))


def test_a_conversation_that_is_sent_again_is_the_same_in_each_api():
    for api in (MESSAGES, RESPONSES):
        first, second = islice(WORKLOADS[f"conversation_200kb_again_{api.name}"].bodies(1), 2)
        assert first == second
        assert 200_000 < len(first) < 215_000
