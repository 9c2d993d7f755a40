from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_conversations import IMAGE, MARK, assistant, body_of, histories, result, spelled, text, use, user
from support.messages_rounds import START_USAGE, body_of_answer

from proxy.core.retrieval_tool import OwnCall
from proxy.errors import (
    ArtifactStoreUnavailable,
    BodyTooLarge,
    ContextOverflow,
    MalformedRequest,
    MissingKey,
    UnknownPath,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.wire import repaired
from proxy.wire.messages import MESSAGES

# Errors


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MalformedRequest("x"), "invalid_request_error"),
        (MissingKey("x"), "authentication_error"),
        (UnknownPath("x"), "not_found_error"),
        (BodyTooLarge("x"), "request_too_large"),
        (UpstreamUnreachable("x"), "api_error"),
        (UpstreamTimeout("x"), "timeout_error"),
        (ArtifactStoreUnavailable("x"), "overloaded_error"),
    ],
)
def test_errors_of_the_proxy_have_the_types_of_the_api(error, kind):
    body = json.loads(MESSAGES.error(error, "req-1"))
    assert body == {"type": "error", "error": {"type": kind, "message": "x"}, "request_id": "req-1"}


def test_an_overflow_is_reported_in_the_one_sentence_that_clients_recognise():
    error = ContextOverflow("words", sizes=(9, 7), advice="Shorten it.")
    reported = json.loads(MESSAGES.error(error))["error"]
    assert reported == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 9 tokens > 7 maximum. Shorten it.",
    }


def test_an_overflow_of_unknown_size_is_reported_in_its_own_words():
    assert json.loads(MESSAGES.error(ContextOverflow("words")))["error"]["message"] == "words"


OWN = b'{"type": "error", "error": {"type": "x",\n "message": "y"}}'


@pytest.mark.parametrize(("status", "body"), [(400, OWN), (529, b" " + OWN), (200, b'{"type":"message"}')])
def test_an_error_of_the_api_and_a_message_stay_the_very_bytes(status, body):
    assert MESSAGES.error_in_body(status, body) is body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"no","type":"BadRequestError"}}', "no"),
        (b'{"error":"no"}', "no"),
        (b'{"message":"no"}', "no"),
        (b'{"detail":"no"}', '{"detail":"no"}'),
        (b"<html>no</html>", "<html>no</html>"),
        (b"", "HTTP 400"),
    ],
)
def test_what_is_no_error_of_the_api_becomes_one_with_the_same_words(body, message):
    assert json.loads(MESSAGES.error_in_body(400, body)) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message},
    }


@given(st.integers(400, 599), st.one_of(st.binary(max_size=100), st.just(OWN)))
def test_an_error_ends_a_stream_as_one_event_in_one_line(status, body):
    name, data, *rest = MESSAGES.error_in_stream(status, body).split(b"\n")
    assert (name, rest) == (b"event: error", [b"", b""])
    assert b"\r" not in data
    assert json.loads(data.removeprefix(b"data: "))["type"] == "error"


# The wire


def test_a_thread_that_the_upstream_holds_is_not_looked_into():
    body = spelled(body_of([user([result(1, "a")])], thread={"type": "continue", "previous_message_id": "m"}))
    request = MESSAGES.parse(body)
    assert [(message.role, list(message.texts())) for message in request.conversation] == [("ignored", [])]
    assert (request.reply_tokens, request.ends, request.shape.is_whole) == (None, (), False)
    assert MESSAGES.with_tool(request, "always") is None


def test_what_counts_besides_messages_is_the_text_of_system_without_the_header_for_the_bill():
    reported = MESSAGES.instructions(
        {"system": spelled([text("x-anthropic-billing-header: cch=1"), text("Be brief.", **MARK)])}
    )
    assert reported == b"Be brief."


@given(histories())
def test_a_request_that_nothing_changes_is_rendered_with_the_very_bytes_of_its_messages(history):
    body = spelled(body_of(history))
    request = MESSAGES.parse(body)
    listed = MESSAGES.render(request, request.conversation.messages, {})
    assert json.loads(listed) == json.loads(body)
    for message in history:
        assert spelled(message) in listed


@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_the_messages_that_two_bodies_share_are_not_read_again_and_are_the_same(history, cut, kept):
    whole = spelled(body_of(history, system="s"))
    part = spelled(body_of(history[: 1 + cut % len(history)], system="s"))
    known = MESSAGES.parse(part)
    shared = known.shared_messages(whole)
    found = MESSAGES.parse(whole, known, shared)
    assert found.conversation == MESSAGES.parse(whole).conversation
    assert found.ends == MESSAGES.parse(whole).ends


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-9, 9),
        st.sampled_from(["user", "assistant", "tool_result", "tool_use", "compaction", "text", "image", "base64"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "source", "data", "input", "tool_use_id", "id", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=25,
)


@given(st.lists(JSON, max_size=5), JSON)
def test_any_request_is_read_or_malformed(messages, other):
    body = spelled({"messages": messages, "system": other, "tools": other, "thread": other, "max_tokens": other})
    try:
        request = MESSAGES.parse(body)
    except MalformedRequest:
        return
    for message in request.conversation:
        message.text()
        list(message.texts())
        list(message.arguments())
        list(message.addresses())
        message.media()
        message.parts()
        message.texts()
        message.unmarked()
        assert isinstance(message.images, int)
        assert message.may_hold_media in (True, False)
        if message.can_carry_a_note:
            at, new = message.with_note("n", after=True)
            message.changed({at: new})
    assert json.loads(MESSAGES.render(request, request.conversation.messages, {})) == json.loads(body)
    MESSAGES.instructions(request.members)
    MESSAGES.with_tool(request, "always")


@pytest.mark.parametrize(
    ("thinking", "tokens", "limited"),
    [
        ({"type": "enabled", "budget_tokens": 4_000}, 5_000, None),
        ({"type": "enabled", "budget_tokens": 4_000}, 4_000, {"type": "enabled", "budget_tokens": 1_024}),
        ({"type": "enabled", "budget_tokens": 4_000}, 1_025, {"type": "enabled", "budget_tokens": 1_024}),
        ({"type": "enabled", "budget_tokens": 4_000}, 1_024, {"type": "disabled"}),
        ({"type": "adaptive"}, 300, None),
        ({"type": "enabled", "budget_tokens": True}, 1, None),
        ([], 300, None),
    ],
)
def test_a_lower_reply_limit_leaves_thinking_less_or_disables_it(thinking, tokens, limited):
    request = MESSAGES.parse(spelled(body_of([user("a")], thinking=thinking)))
    found = MESSAGES.limiting(request, tokens)
    assert json.loads(found.pop("max_tokens")) == tokens
    assert {name: json.loads(raw) for name, raw in found.items()} == ({"thinking": limited} if limited else {})


def test_thinking_is_disabled_in_a_tool_loop_that_has_lost_it_or_was_refused_and_in_no_client_s_own():
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    history = [user("a"), assistant([use(1)]), user([result(1, [text("b")])])]
    asked, own = (MESSAGES.parse(spelled(body_of(some, thinking=thinking))) for some in (history[:1], history))
    in_a_round = asked.continued(own.conversation.messages[1:])
    refused = repaired(MESSAGES, own, "messages.1.content.0.type: Expected `thinking`", "")
    for request, found in ((in_a_round, {"type": "disabled"}), (refused, {"type": "disabled"}), (own, thinking)):
        rendered = MESSAGES.render(request, request.conversation.messages, {})
        assert json.loads(rendered)["thinking"] == found


@pytest.mark.parametrize("content", [[IMAGE], [result(1, [IMAGE])]])
def test_images_are_found_anywhere_in_a_request(content):
    assert MESSAGES.parse(spelled(body_of([user(content)]))).has_images
    assert not MESSAGES.parse(spelled(body_of([user([text('{"type": "image"}')])]))).has_images


def test_results_may_name_images_as_other_apis_do():
    assert MESSAGES.may_name_images(b'"input_image"')
    assert not MESSAGES.may_hold_images(b'"input_image"')
    assert not MESSAGES.may_name_images(b'"text"')


@pytest.mark.parametrize("thread", [{"type": "new"}, "continue", None])
def test_any_other_thread_is_looked_into(thread):
    request = MESSAGES.parse(spelled(body_of([user([result(1, "a")])], thread=thread)))
    assert [message.role for message in request.conversation] == ["tool"]
    assert MESSAGES.with_tool(request, "always") is not None


def test_a_prompt_that_filled_its_window_is_an_overflow_whatever_part_was_cached():
    body = body_of_answer([], "model_context_window_exceeded", usage=START_USAGE)
    assert MESSAGES.judged(200, (), body, sent=None, request=b"").prompt == 423


def test_the_answer_to_a_call_is_a_message_with_its_result():
    (call,) = MESSAGES.message(spelled(assistant([use(1)]))).calls
    for raw in (
        MESSAGES.result(OwnCall("toolu_1", "{}"), "a page"),
        MESSAGES.missing_result(MESSAGES.message(b"{}"), call, "a page"),
    ):
        found = MESSAGES.message(raw)
        assert (found.role, found.answers, found.text()) == ("tool", "toolu_1", "a page")


@pytest.mark.parametrize(
    ("headers", "lifts"),
    [
        ([(b"anthropic-beta", b"context-1m-2025-08-07")], True),
        ([(b"anthropic-version", b"2023-06-01"), (b"anthropic-beta", b"a-2025-01-01, context-1m-2026-01-01")], True),
        ([(b"anthropic-beta", b"a"), (b"anthropic-beta", b"context-1m-2025-08-07")], True),
        ([(b"anthropic-beta", b"context-management-2025-06-27")], False),
        ([(b"x-note", b"context-1m-2025-08-07")], False),
        ([], False),
    ],
)
def test_a_beta_lifts_the_window(headers, lifts):
    assert MESSAGES.asks_for_a_longer_window(headers) is lifts


def test_a_list_of_models_is_requested_with_a_version_and_the_key_in_both_headers():
    headers = MESSAGES.list_headers("k")
    assert headers[b"anthropic-version"] == b"2023-06-01"
    assert (headers[b"x-api-key"], headers[b"authorization"]) == (b"k", b"Bearer k")
