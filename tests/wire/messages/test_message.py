from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from support.media_samples import PDF
from support.messages_conversations import (
    DOCUMENT,
    IMAGE,
    MARK,
    PNG,
    assistant,
    body_of,
    histories,
    result,
    spelled,
    system,
    text,
    use,
    user,
)

from proxy.core.content_types import media_type
from proxy.core.conversation import Attachment, Carried, Parts, Route, Shape, Shown, Words
from proxy.wire.messages import MESSAGES, ApiMessage

# Blocks with media

URL = "https://example.org/d/a.png"


def attachment_of(block):
    return ApiMessage.read_part(spelled(block), block).attachment


def of(kind, source, **members):
    return attachment_of({"type": kind, "source": source, **members})


def shown(content, route=Route.IMAGE, like=None, address=""):
    return json.loads(ApiMessage.json_of(Shown(route, media_type(content or b""), content, address, like=like), "user"))


@pytest.mark.parametrize(("kind", "shape"), [("image", Shape.IMAGE), ("document", Shape.FILE)])
def test_base64_is_a_content_with_its_declared_type(kind, shape):
    found = of(kind, {"type": "base64", "media_type": "a/b", "data": PNG}, title="T")
    assert (found.shape, found.payload, found.declared, found.is_elsewhere) == (shape, PNG, "a/b", False)
    assert of(kind, {"type": "base64", "media_type": 7, "data": PNG}).declared == ""


def test_content_held_elsewhere_is_named_by_its_address_and_its_last_part():
    assert of("image", {"type": "url", "url": URL}) == Attachment(
        Shape.IMAGE, address=URL, declared="image/*", name="a.png"
    )
    assert of("document", {"type": "file", "file_id": "file_1"}) == Attachment(
        Shape.FILE, address="file_1", declared="document/*"
    )


@pytest.mark.parametrize(
    "block",
    [
        DOCUMENT,
        text("a"),
        {"type": "image"},
        {"type": "image", "source": "x"},
        *(
            {"type": "image", "source": source}
            for source in (
                {"type": "base64"},
                {"type": "base64", "data": 7},
                {"type": "url", "url": "nowhere"},
                {"type": "file", "file_id": None},
                {"type": "new", "data": PNG},
                {},
            )
        ),
    ],
)
def test_texts_and_blocks_without_a_source_that_is_known_hold_no_media(block):
    assert attachment_of(block) is None


def test_a_block_of_another_api_holds_what_that_api_says():
    found = attachment_of({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})
    assert (found.shape, found.payload) == (Shape.IMAGE, PNG)


def test_the_rest_of_a_block_is_what_is_neither_its_content_nor_long():
    block = {**DOCUMENT, **MARK, "citations": {"enabled": True}, "odd": "x" * 5_000}
    assert json.loads(ApiMessage.rest_of(block)) == {**MARK, "title": "t", "citations": {"enabled": True}}


def test_an_image_is_written_with_what_the_old_block_says():
    assert shown(base64.b64decode(PNG), like=ApiMessage.rest_of({**IMAGE, **MARK})) == {**IMAGE, **MARK}


@pytest.mark.parametrize("route", [route for route in Route if route is not Route.IMAGE])
def test_whatever_is_no_image_is_a_document(route):
    found = shown(PDF, route)
    assert found["type"] == "document"
    assert found["source"]["media_type"] == "application/pdf"
    assert base64.b64decode(found["source"]["data"]) == PDF


def test_what_is_not_here_is_shown_by_its_address():
    assert shown(None, address=URL) == {"type": "image", "source": {"type": "url", "url": URL}}


# Blocks


def part_read(block):
    return ApiMessage.read_part(spelled(block), block)


@pytest.mark.parametrize(
    ("block", "expected"), [(text("a"), "a"), (text(""), ""), (use(1), None), ("a", None), ({"text": "a"}, None)]
)
def test_only_a_text_block_has_a_text(block, expected):
    found = part_read(block)
    assert (found.raw, found.text, found.attachment, found.rest) == (spelled(block), expected, None, b"")


@pytest.mark.parametrize(
    ("item", "written"),
    [
        (Carried(b'{"x" : 1}'), b'{"x" : 1}'),
        (Words("b"), spelled(text("b"))),
        (Words("b", like=spelled(text("a", **MARK))), spelled(text("b", **MARK))),
        (Words("b", like=spelled(use(1))), spelled(text("b"))),
        (Words("b", like=b'"a"', instead_of=spelled({**IMAGE, **MARK})), spelled(text("b", **MARK))),
        (Words("b", instead_of=b'{"cache_control":null}'), spelled(text("b"))),
        (Words("b", instead_of=b"7"), spelled(text("b"))),
    ],
)
def test_a_block_keeps_its_bytes_and_a_text_the_mark_of_what_it_replaces(item, written):
    assert json.loads(ApiMessage.json_of(item, "user")) == json.loads(written)
    assert not isinstance(item, Carried) or ApiMessage.json_of(item, "user") == written


# Messages


def read(*messages):
    return [ApiMessage.read(spelled(message)) for message in messages]


def views(message):
    """With a view for each result."""
    return list(MESSAGES.parse(spelled(body_of([message]))).conversation)


def test_calls_are_those_that_a_client_answers():
    (found,) = read(assistant([use(1, "Bash"), {"type": "server_tool_use", "id": "s", "name": "web", "input": {}}]))
    assert [(call.id, call.name) for call in found.calls] == [("toolu_1", "Bash")]


def test_each_block_of_thinking_may_give_way_to_a_text_in_its_place():
    blocks = [{"type": "thinking", "thinking": "因为", "signature": "S" * 99}, text("so")]
    blocks += [{"type": "redacted_thinking", "data": "E" * 99}, use(1, "Bash")]
    (found,) = read(assistant(blocks))
    thought, sealed = found.reasoning()
    assert [(one.at, one.text, json.loads(one.raw)) for one in (thought, sealed)] == [
        (("content", 0), "因为", blocks[0]),
        (("content", 2), None, blocks[2]),
    ]
    changed = found.changed({thought.at: "[left out]", sealed.at: "[so, too]"})
    left, *others = json.loads(changed.raw)["content"]
    assert [left, *others] == [text("[left out]"), blocks[1], text("[so, too]"), blocks[3]]


@pytest.mark.parametrize("message", [user([result(1, 'a "thinking" text')]), user("thinking"), assistant("thinking")])
def test_who_has_not_thought_has_no_reasoning(message):
    assert [list(view.reasoning()) for view in views(message)] == [[]]
    assert all(view.reasoning_bytes == 0 for view in views(message))


def test_images_in_results_are_media_there():
    (found,) = read(user([result(1, [text("shot"), IMAGE])]))
    assert found.images == 1
    assert [one is not None for one in found.media()] == [True]
    _, parts = found.parts()
    assert [part.attachment is not None for part in parts] == [False, True]
    assert parts[1].attachment.payload == PNG


@pytest.mark.parametrize(
    ("content", "may"),
    [
        ([IMAGE], True),
        ([{"type": "document", "source": {"type": "file", "file_id": "f"}}], True),
        ([result(1, [text("shot"), IMAGE])], True),
        ([{"type": "resource", "resource": {}}], True),
        ([text("a"), use(1), {"type": "thinking", "thinking": "b", "signature": "S"}], False),
        ([{"type": "redacted_thinking", "data": "R"}, text("a", **MARK)], False),
        ([result(1, "a"), result(2, [text("b")])], False),
    ],
)
def test_only_what_may_hold_media_is_searched_for_them(content, may):
    assert ApiMessage.read(spelled(user(content))).may_hold_media is may


def test_a_result_that_is_a_string_stays_one():
    (found,) = read(user([result(1, "a")]))
    noted = found.changed({at: "note" + text for at, text in found.texts()})
    assert json.loads(noted.raw) == user([result(1, "notea")])


def test_no_cache_mark_is_on_an_empty_text():
    (found,) = read(user([text("x", **MARK), text("y")]))
    at, (first, second) = found.parts()
    changed = found.changed({at: Parts((Words("", first.raw), Carried(second.raw)))})
    assert json.loads(changed.raw)["content"] == [text(""), text("y")]


def test_the_input_of_a_call_stays_an_object():
    (found,) = read(assistant([text("x"), use(1, path="a")]))
    (argument,) = found.arguments()
    assert (json.loads(argument.text), argument.call_id) == ({"path": "a"}, "toolu_1")
    assert json.loads(found.changed({argument.at: '{"path":"b"}'}).raw)["content"][1]["input"] == {"path": "b"}
    assert json.loads(found.changed({argument.at: "cut"}).raw)["content"][1]["input"] == {"text": "cut"}


def test_marks_and_the_form_of_a_lone_text_are_no_part_of_what_is_kept():
    marked, plain = (read(user(content))[0] for content in ([text("a", **MARK)], "a"))
    assert json.loads(marked.unmarked()) == json.loads(plain.unmarked()) == user("a")
    assert (marked.is_marked, plain.is_marked) == (True, False)


@pytest.mark.parametrize("odd", [b"7", b"null", b"[]", b"{", b"", b'{"role": 7}', b'{"role": ["user"], "content": 7}'])
def test_any_bytes_are_a_message_that_says_nothing(odd):
    found = ApiMessage.read(odd)
    assert (found.role, found.text(), found.parts(), found.calls) == ("", "", None, ())
    assert found.unmarked() == odd


def test_the_text_of_a_message_is_not_in_what_a_log_may_hold():
    assert repr(ApiMessage.read(b'{"role":"user","content":"secret"}')) == "ApiMessage('user', 34 bytes)"


@given(histories())
def test_each_text_is_changed_in_place(history):
    for message in history:
        for view in views(message):
            changes = {at: text + "!" for at, text in view.texts()}
            changed = view.changed(changes) if changes else view
            assert [text for _, text in changed.texts()] == [text + "!" for _, text in view.texts()]
            assert (changed.role, changed.answers, changed.images) == (view.role, view.answers, view.images)


@given(histories())
def test_parts_that_are_carried_make_the_message_that_was(history):
    for message in history:
        for view in views(message):
            at, parts = view.parts()
            if isinstance(view.content(), list):
                changed = view.changed({at: Parts(tuple(Carried(part.raw) for part in parts))})
                assert changed.content() == view.content()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("message", "place"), [(user([IMAGE]), 0), (user([result(1, "a"), IMAGE]), 1)])
def test_a_note_is_a_block_of_its_own_beside_what_holds_no_text(message, place, after):
    view = views(message)[place]
    at, new = view.with_note("n", after=after)
    noted = view.changed({at: new}).content()
    assert noted == ([IMAGE, text("n")] if after else [text("n"), IMAGE])


@pytest.mark.parametrize("content", ["a", [IMAGE], []])
@pytest.mark.parametrize("before", [[], [result(1, "x")]])
def test_a_note_follows_a_result_and_is_not_inside_it(content, before):
    history = [*before, result(2, content)]
    request = MESSAGES.parse(spelled(body_of([user(history)])))
    found = list(request.conversation)
    at, new = found[-1].with_note("n", after=False)
    noted = found[-1].changed({at: new})
    sent = json.loads(MESSAGES.render(request, [*found[:-1], noted], {}))
    assert sent["messages"] == [user([*history, text("n")])]
    assert "n" in noted.text()
    assert [view.can_carry_a_note for view in found] == [False] * len(before) + [True]


def test_a_note_is_all_that_an_empty_message_says():
    (found,) = read({"role": "user"})
    at, new = found.with_note("n", after=True)
    assert json.loads(found.changed({at: new}).raw) == user("n")


@pytest.mark.parametrize(
    ("message", "can"),
    [
        (user("a"), True),
        (user([result(1, "a")]), True),
        (assistant("a"), False),
        (system("a"), False),
        (user(7), False),
    ],
)
def test_a_note_is_never_inside_the_models_words(message, can):
    assert read(message)[0].can_carry_a_note is can


def test_another_message_is_written_beside_one():
    (found,) = read(user("a"))
    assert json.loads(found.beside("user", "b").raw) == user("b")
    assert json.loads(found.beside("user", [Words("b"), Carried(b'{"x":1}')]).raw) == user([text("b"), {"x": 1}])


def test_a_mark_in_what_a_call_was_given_is_none():
    message = assistant([use(1, **MARK), text("a", **MARK)])
    (found,) = read(message)
    assert json.loads(found.unmarked()) == assistant([use(1, **MARK), text("a")])


def test_marks_in_and_beside_results_are_taken_off():
    marked = user([result(1, [text("a", **MARK)], **MARK), text("b", **MARK)])
    first, second = views(marked)
    assert json.loads(first.unmarked()) == result(1, [text("a")])
    assert json.loads(second.unmarked()) == text("b")


def test_images_among_parts_are_those_that_came_and_those_that_are_shown():
    blocks = [IMAGE, text('"image"'), DOCUMENT, {"type": "new", "of": "image"}]
    (found,) = read(user(blocks))
    shown = [Shown(route, media_type(b"")) for route in (Route.IMAGE, Route.FILE)]
    assert found.images_among([*(Carried(part.raw) for part in found.parts()[1]), *shown, Words("image")]) == 2


@pytest.mark.parametrize(("written", "text"), [(b'{"x":  1}', '{"x":  1}'), (b'{"x":  "\xff"}', '{"x":"\\udcff"}')])
def test_a_readable_input_is_shown_as_written(written, text):
    call = b'{"type":"tool_use","id":"a","name":"b","input":' + written + b"}"
    (argument,) = ApiMessage.read(b'{"role":"assistant","content":[' + call + b"]}").arguments()
    assert argument.text == text


@pytest.mark.parametrize(
    ("parts", "content"), [([Words("a")], "a"), ([Words("a"), Words("b")], [text("a"), text("b")])]
)
def test_a_plain_text_stays_one_as_long_as_it_is_one(parts, content):
    (found,) = read(user("x"))
    assert found.changed({("content",): Parts(tuple(parts))}).content() == content


@pytest.mark.parametrize("block", [use(1), {"type": "tool_use"}, {"type": "tool_use", "id": None, "name": 7}])
def test_any_call_has_an_id_and_a_name_or_empty_ones(block):
    (call,) = read(assistant([block]))[0].calls
    assert (call.id, call.name) == (("toolu_1", "Read") if block == use(1) else ("", ""))


@given(histories())
def test_without_its_thinking_a_message_keeps_every_other_block(history):
    for message in history:
        for view in views(message):
            left = view.unsealed()
            blocks = view.content() if isinstance(view.content(), list) else []
            kept = [block for block in blocks if block["type"] not in ("thinking", "redacted_thinking")]
            if len(kept) == len(blocks) or view.role != "assistant":
                assert left is view
            elif not kept:
                assert left is None
            else:
                assert (left.content(), left.calls, left.role) == (kept, view.calls, view.role)
                assert left.is_companion == view.is_companion


def test_the_addresses_of_a_message_are_those_that_it_names():
    linked = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    (found,) = read(user([text("a"), linked, IMAGE, {"type": "document", "source": {"type": "file", "file_id": "f"}}]))
    assert list(found.addresses()) == ["https://example.org/a.png"]
    assert list(read(user("https://example.org/a.png"))[0].addresses()) == []


def test_what_a_result_routes_is_named_and_what_a_person_writes_is_not():
    routed = json.dumps({"routing": "file", "artifact": "artifact:a1"})
    (found, question) = read(user([result(1, routed)]), user(routed))
    assert (list(found.addresses()), list(question.addresses())) == (["artifact:a1"], [])


def test_a_member_without_a_new_value_goes():
    (found,) = read(user([{**text("a"), "cache_control": {"type": "ephemeral"}}, text("b")]))
    changed = found.changed({("content", 0, "cache_control"): None})
    assert json.loads(changed.raw)["content"] == [text("a"), text("b")]
