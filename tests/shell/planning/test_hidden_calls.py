import functools
import json
from typing import Any

from proxy.core.retrieval_tool import Continuation, HiddenToolCalls, OwnCall, beginning, extended, mark_of_name
from proxy.core.retrieval_tool.hidden_calls import mark_of
from proxy.errors import ArtifactNotFound, ArtifactStoreUnavailable
from proxy.shell.planning import HiddenCallMemory
from proxy.wire.chat_completions import CHAT_COMPLETIONS, ChatMessage
from proxy.wire.chat_completions.message import meant_by
from proxy.wire.responses import RESPONSES


class Kept:
    """A store and its reader."""

    def __init__(self):
        self.contents: dict[tuple[str, str], bytes] = {}
        self.lookups: list[str] = []
        self.trouble: Exception | None = None

    async def keep(self, artifacts, tenant):
        if self.trouble:
            return frozenset(artifact.id for artifact in artifacts)
        for artifact in artifacts:
            self.contents.setdefault((artifact.id, tenant), artifact.content)
        return frozenset()

    async def find(self, name, tenant):
        self.lookups.append(name)
        if self.trouble:
            raise self.trouble
        if (name, tenant) not in self.contents:
            raise ArtifactNotFound("no")
        return type("Stored", (), {"size": len(self.contents[name, tenant]), "key": (name, tenant)})

    async def piece(self, stored, start, stop):
        return self.contents[stored.key][start:stop]


def calls(number):
    return [{"id": f"call_{number}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]


def conversation(*numbers):
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for number in numbers:
        messages.append({"role": "assistant", "content": None, "tool_calls": calls(number)})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": "x"})
    return messages


def request(*numbers):
    return CHAT_COMPLETIONS.parse(json.dumps({"messages": conversation(*numbers)}).encode())


def hidden(*numbers, page="page", tenant="me"):
    """Of the last of these calls."""
    *before, number = numbers
    history = functools.reduce(extended, request(*before).conversation, beginning(tenant))
    mark = mark_of(history, meant_by([json.dumps(call).encode() for call in calls(number)]))
    own = json.dumps({"id": f"own_{number}", "function": {"name": "read_artifact", "arguments": "{}"}}).encode()
    result = json.dumps({"role": "tool", "tool_call_id": f"own_{number}", "content": page}).encode()
    return HiddenToolCalls(mark, (0,), (own,), (result,))


def memory(kept):
    return HiddenCallMemory(kept, kept)


async def completed(found, tenant, *numbers):
    """As a planner asks."""
    _, unknown = found.completed(tenant, CHAT_COMPLETIONS, request(*numbers))
    if unknown:
        await found.look_up(tenant, unknown)
    whole, unknown = found.completed(tenant, CHAT_COMPLETIONS, request(*numbers))
    assert unknown == ()
    return whole.conversation


def pages(found):
    return [message.answers for message in found if message.answers.startswith("own_")]


async def test_what_is_kept_is_put_back_here_and_elsewhere():
    kept = Kept()
    first = memory(kept)
    assert await first.keep("me", hidden(1, 2))
    for found in (first, memory(kept)):
        assert pages(await completed(found, "me", 1, 2, 3)) == ["own_2"]
        assert pages(await completed(found, "you", 1, 2, 3)) == []


async def test_the_store_is_queried_once_for_each_message():
    kept = Kept()
    found = memory(kept)
    await completed(found, "me", 1, 2)
    await completed(found, "me", 1, 2, 3)
    assert len(kept.lookups) == 3


async def test_a_missing_artifact_is_not_looked_up_again():
    kept = Kept()
    found = memory(kept)
    assert pages(await completed(found, "me", 1)) == []
    count = len(kept.lookups)
    assert pages(await completed(found, "me", 1)) == []
    assert len(kept.lookups) == count


async def test_a_look_up_that_failed_is_made_again():
    kept = Kept()
    assert await memory(kept).keep("me", hidden(1))
    found = memory(kept)
    kept.trouble = ArtifactStoreUnavailable("gone")
    assert not await found.keep("me", hidden(1))
    _, unknown = found.completed("me", CHAT_COMPLETIONS, request(1))
    assert not await found.look_up("me", unknown)
    assert found.unknown("me", unknown) == unknown
    kept.trouble = None
    assert pages(await completed(found, "me", 1)) == ["own_1"]


async def test_what_is_known_is_bounded_in_number_and_bytes(monkeypatch):
    monkeypatch.setattr("proxy.shell.planning.hidden_calls.MAX_KNOWN", 3)
    monkeypatch.setattr("proxy.shell.planning.hidden_calls.MAX_KNOWN_BYTES", 3_000)
    kept = Kept()
    found = memory(kept)
    for number in range(5):
        await found.keep("me", hidden(number, page="x" * 1_500))
    assert len(found._known) == 1
    assert found._known.held_bytes <= 3_000
    for number in range(5, 10):
        await found.keep("me", hidden(number, page=""))
    assert len(found._known) == 3
    assert found._known.held_bytes == sum(one.held_bytes for one in map(found._known.get, found._known) if one)


async def test_after_a_restart_the_newest_messages_of_a_long_run_are_looked_up(monkeypatch):
    monkeypatch.setattr("proxy.shell.planning.hidden_calls.MAX_ASKED", 2)
    kept = Kept()
    await memory(kept).keep("me", hidden(1))
    await memory(kept).keep("me", hidden(1, 2, 3, 4, 5))
    assert pages(await completed(memory(kept), "me", 1, 2, 3, 4, 5)) == ["own_5"]


def test_messages_without_calls_cost_nothing():
    request = CHAT_COMPLETIONS.parse(
        b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    )
    whole, unknown = memory(Kept()).completed("me", CHAT_COMPLETIONS, request)
    assert (whole.conversation, unknown) == (request.conversation, ())
    assert ChatMessage.read(b"{}").calls == ()


async def test_the_same_call_later_on_has_its_own_pages():
    kept = Kept()
    first = memory(kept)
    for before in ((1,), (1, 1, 1)):
        assert await first.keep("me", hidden(*before, page=f"page {len(before)}"))
    for found in (first, memory(kept)):
        whole = await completed(found, "me", 1, 1, 1)
        reported = [message.content() for message in whole if message.answers == "own_1"]
        assert reported == ["page 1", "page 3"]


async def test_a_conversation_continued_twice_keeps_its_first_record_everywhere():
    kept = Kept()
    first, second = memory(kept), memory(kept)
    assert await first.keep("me", hidden(1, page="first"))
    assert await second.keep("me", hidden(1, page="second"))
    for found in (first, second, memory(kept)):
        whole = await completed(found, "me", 1)
        assert [message.content() for message in whole if message.answers == "own_1"] == ["first"]


async def test_a_later_turn_reads_its_new_messages_only():
    kept = Kept()
    found = memory(kept)
    await found.keep("me", hidden(1))
    await completed(found, "me", 1)
    known, _ = found.completed("me", CHAT_COMPLETIONS, request(1))
    body = json.dumps({"messages": conversation(1, 2)}).encode()
    later = CHAT_COMPLETIONS.parse(body, known, known.shared_messages(body))
    assert (later.read_messages, len(later.conversation)) == (4, 6)
    whole, unknown = found.completed("me", CHAT_COMPLETIONS, later)
    fresh, same = found.completed("me", CHAT_COMPLETIONS, request(1, 2))
    assert (unknown, whole.conversation, whole.history) == (same, fresh.conversation, fresh.history)


def turn(previous, **members):
    body = {"model": "m", "previous_response_id": previous, "input": [{"role": "user", "content": "Go."}], **members}
    return RESPONSES.parse(json.dumps(body).encode())


async def continued(found, tenant, previous):
    """As a planner asks: at most one mark is unknown, that of the response."""
    _, unknown = found.completed(tenant, RESPONSES, turn(previous))
    assert len(unknown) <= 1
    if unknown:
        await found.look_up(tenant, unknown)
    whole, unknown = found.completed(tenant, RESPONSES, turn(previous))
    assert unknown == ()
    return whole


def answers(number):
    return RESPONSES.result(OwnCall(0, f"own_{number}", "{}", b""), "page")


async def test_results_that_a_response_waits_for_are_sent_by_the_request_that_continues_it():
    kept = Kept()
    first = memory(kept)
    assert await first.keep("me", Continuation.of("me", "resp_1", "resp_3", [answers(1), answers(2)]))
    for found in (first, memory(kept)):
        whole = await continued(found, "me", "resp_1")
        assert [message.answers for message in whole.conversation] == ["own_1", "own_2", ""]
        assert RESPONSES.continues(whole) == "resp_3"
        assert whole.read_messages == 3
        for tenant, previous in (("you", "resp_1"), ("me", "resp_3")):
            assert not (await continued(found, tenant, previous)).is_rewritten


async def test_the_store_is_queried_once_for_each_response():
    kept = Kept()
    found = memory(kept)
    for previous in ("resp_1", "resp_1", "resp_2"):
        await continued(found, "me", previous)
    assert len(kept.lookups) == 2


async def test_the_response_is_looked_up_even_after_a_long_list(monkeypatch):
    monkeypatch.setattr("proxy.shell.planning.hidden_calls.MAX_ASKED", 1)
    found = memory(Kept())
    call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    _, unknown = found.completed(
        "me", RESPONSES, turn("resp_1", input=[call, {"role": "user", "content": "Go."}, call])
    )
    assert (len(unknown), unknown[-1]) == (3, mark_of_name("me", "resp_1"))


async def test_calls_behind_an_id_have_their_own_pages():
    """Earlier items are in the response, so its id distinguishes the calls; the results that it waits for do not
    change them."""
    found = memory(Kept())
    await found.keep("me", Continuation.of("me", "resp_1", "resp_1", [answers(1)]))
    calls = [{"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}]
    alone, one, other = (
        {*found.completed("me", RESPONSES, turn(previous, input=calls))[1]} - {mark_of_name("me", previous)}
        for previous in ("", "resp_1", "resp_2")
    )
    assert len(alone | one | other) == 3
    _, lost = memory(Kept()).completed("me", RESPONSES, turn("resp_1", input=calls))
    assert one < {*lost}
