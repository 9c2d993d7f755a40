from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.media_samples import PNG

from proxy.core.content_types import media_type
from proxy.core.conversation import Carried, Parts, Route, Shown, ToolCall, Words, unpaired
from proxy.core.text import jsontext
from proxy.wire.ollama import OLLAMA, OllamaMessage

IMAGE = base64.b64encode(PNG).decode()


def message(**members):
    return OllamaMessage.read(json.dumps(members).encode())


def calling(*calls):
    return message(
        role="assistant", tool_calls=[{"function": {"name": name, "arguments": {}}, **more} for name, more in calls]
    )


def test_what_clients_write_is_read_and_every_byte_is_kept():
    raw = b'{"role": "Assistant", "thinking":"Hm.", "tool_calls": [{"function":{"name":"get","arguments":{"a": 1}}}]}'
    found = OllamaMessage.read(raw)
    assert (found.role, found.raw, found.calls) == ("assistant", raw, (ToolCall("#0", "get"),))
    assert found.text() == 'Hm.\nget\n{"a":1}'
    assert [(one.call_id, one.text) for one in found.arguments()] == [("#0", '{"a":1}')]
    assert [text for _, text in found.thoughts()] == ["Hm."]
    assert [one.raw for one in found.reasoning()] == [b'"Hm."']
    assert found.reasoning_bytes == 5


@pytest.mark.parametrize(
    "raw",
    [
        b"7",
        b'"text"',
        b"[]",
        b'{"role": 7, "content": [1], "tool_calls": {"a": 1}, "thinking": 3, "images": "x"}',
        b'{"role": "tool", "tool_name": null, "tool_call_id": null, "tool_calls": null, "content": null}',
        b'{"role": "assistant", "tool_calls": [7, {"function": 7}, {"function": {"name": 7, "arguments": "{}"}}]}',
        b'{"role": "user", "content": "\\ud800", "images": [7, "?"]}',
    ],
)
def test_nothing_odd_raises_and_nothing_of_it_is_lost(raw):
    found = OllamaMessage.read(raw)
    assert found.raw == raw
    list(found.arguments()), list(found.texts()), list(found.thoughts()), found.parts(), found.media()
    found.text(), found.may_hold_media, found.can_carry_a_note
    assert found.changed({}).raw == raw


def test_arguments_stay_an_object_when_they_change():
    found = message(
        role="assistant", tool_calls=[{"id": "call_1", "function": {"name": "w", "arguments": {"t": "long"}}}]
    )
    (one,) = found.arguments()
    changed = found.changed({one.at: '{"t":"…"}'})
    assert json.loads(changed.raw)["tool_calls"][0]["function"]["arguments"] == {"t": "…"}
    assert changed.calls == found.calls


def test_text_and_images_change_together():
    found = message(role="user", content="look", images=[IMAGE, IMAGE])
    at, parts = found.parts()
    assert [part.text for part in parts] == ["look", None, None]
    assert parts[1].attachment.content() == PNG
    assert (parts[1].attachment.declared, found.images) == ("image/png", 2)
    kept = Parts((Carried(parts[0].raw), Words("[a picture]"), Carried(parts[2].raw)))
    assert json.loads(found.changed({at: kept}).raw) == {
        "role": "user",
        "content": "look\n[a picture]",
        "images": [IMAGE],
    }
    none = Parts((Words("nothing"),))
    assert json.loads(found.changed({at: none}).raw) == {"role": "user", "content": "nothing"}
    shown = Shown(Route.IMAGE, media_type(PNG), PNG)
    beside = found.beside("user", [Words("a"), shown, Carried(parts[1].raw)])
    assert json.loads(beside.raw) == {"role": "user", "content": "a", "images": [IMAGE, IMAGE]}
    assert found.images_among([Words("a"), shown, Carried(parts[1].raw), Carried(parts[0].raw)]) == 2


def test_an_empty_list_of_images_is_none():
    assert not OLLAMA.may_hold_images(b'{"role":"user","content":"\\"images\\": [","images": []}')
    assert OLLAMA.may_hold_images(b'{"images" : [ "iVBOR"]}')


def test_a_note_may_become_the_content_that_a_message_lacks():
    found = calling(("get", {}))
    assert found.can_carry_a_note
    at, content = found.with_note("[note]", after=False)
    assert json.loads(found.changed({at: content}).raw)["content"] == "[note]"


# Pairs


def answers(*messages):
    raws = b",".join(message.raw for message in messages)
    return [one.answers for one in OLLAMA.parse(b'{"messages":[' + raws + b"]}").conversation]


def test_a_name_or_an_id_says_which_call_a_result_answers():
    first, second = ("a", {"id": "call_1"}), ("b", {"id": "call_2"})
    named = [message(role="tool", tool_name=name, content="x") for name in "ba"]
    assert answers(calling(first, second), *named) == ["", "call_2", "call_1"]
    cited = [message(role="tool", tool_call_id=one, content="x") for one in ("call_2", "call_1")]
    assert answers(calling(first, second), *cited) == ["", "call_2", "call_1"]


def test_an_id_that_no_call_has_is_none():
    """Messages as litellm sends them: results have ids, calls have none."""
    cited = [message(role="tool", tool_call_id=one, content="x") for one in ("call_x", "call_y")]
    assert answers(calling(("a", {}), ("b", {})), *cited) == ["", "#0", "#1"]


def test_equal_ids_are_places():
    assert [call.id for call in calling(("a", {"id": "1"}), ("b", {"id": "1"})).calls] == ["#0", "#1"]


_batches = st.lists(
    st.tuples(
        st.lists(st.sampled_from("aab"), min_size=0, max_size=4),
        st.booleans(),  # whether calls have ids
        st.booleans(),  # whether results cite them
        st.booleans(),  # whether results name their tool
        st.randoms(use_true_random=False),
    ),
    max_size=6,
)


def history(batches, start=0):
    """Messages, and for each result the text that its call was made with."""
    found = [{"role": "user", "content": "Go."}]
    for number, (names, has_ids, cites, is_named, order) in enumerate(batches, start):
        calls = [(name, f"call_{number}_{place}") for place, name in enumerate(names)]
        written = [
            {**({"id": one} if has_ids else {}), "function": {"name": name, "arguments": {"n": one}}}
            for name, one in calls
        ]
        found.append({"role": "assistant", "content": "", **({"tool_calls": written} if written else {})})
        if has_ids and cites:
            order.shuffle(calls)
        for name, one in calls:
            ids = {"tool_call_id": one} if cites else {}
            found.append({"role": "tool", "content": one, **ids, **({"tool_name": name} if is_named else {})})
    return found


def results_with_arguments(messages):
    """For each result: what it says, and the arguments of the call that it answers."""
    pairs, calls = [], {}
    for one in messages:
        calls = (
            {arg.call_id: json.loads(arg.text)["n"] for arg in one.arguments()} if one.role == "assistant" else calls
        )
        if one.role == "tool":
            pairs.append((one.text(), calls.get(one.answers)))
    return pairs


@given(_batches, st.data())
def test_every_result_is_paired_with_its_call_however_it_is_written(batches, data):
    bodies = history(batches)
    whole = OLLAMA.parse(jsontext.dump({"model": "m", "messages": bodies}))
    assert all(output == argument for output, argument in results_with_arguments(whole.conversation))
    assert not unpaired(whole.conversation.messages)
    count = data.draw(st.integers(1, len(bodies)))
    before = OLLAMA.parse(jsontext.dump({"model": "m", "messages": bodies[:count]}))
    shared = before.shared_messages(whole.body)
    assert shared == count
    assert OLLAMA.parse(whole.body, before, shared).conversation == whole.conversation, "in pieces as in one"


@given(_batches, st.data())
def test_dropping_exchanges_never_parts_results_from_their_calls(batches, data):
    whole = OLLAMA.parse(jsontext.dump({"model": "m", "messages": history(batches)}))
    kept, drops = [], False
    for one in whole.conversation:
        if one.role != "tool":
            drops = one.role == "assistant" and data.draw(st.booleans())
        if not drops:
            kept.append(one)
    again = OLLAMA.parse(OLLAMA.render(whole, kept, {}))
    assert [(one.raw, one.answers) for one in again.conversation] == [(one.raw, one.answers) for one in kept]
    assert all(output == argument for output, argument in results_with_arguments(again.conversation))


def test_no_reasoning_is_sealed():
    found = message(role="assistant", content="", thinking="Hm.")
    assert found.unsealed() is found


def test_what_is_no_image_in_base64_stays_a_part_without_a_type():
    found = message(role="user", content="Look.", images=[IMAGE, "A", 7])
    _, (_, *images) = found.parts()
    assert [part.attachment and part.attachment.declared for part in images] == ["image/png", "", None]


def test_arguments_that_no_tool_takes_are_not_arguments():
    raw = b'{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}'
    assert list(OllamaMessage.read(raw).arguments()) == []
