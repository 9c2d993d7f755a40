"""A limit that a refusal names besides the window is kept to in one more send, and in all later turns.

Rule: whole conversations, turn by turn; a row is an API, what its upstream limits and how it says so, and what the
agent does. Each turn ends well, and a limit costs one refusal, or one more where its words name no number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from support.chat_as import SPELLED
from support.journey import World, call, long_text, result, world
from support.media_samples import PDF, WAV, audio_part, base64_of, file_part, image_part, png
from support.upstream import FACES, Over, Rule, ScriptedModel, listening, valid, words

Json = dict[str, Any]
Turns = Callable[[], Iterator[list[Json]]]
TASK: Final = "Look at every page and say which one is wrong."
NEWEST: Final = "Now say what you found."
CHAT, ALL = ("chat",), tuple(SPELLED)
SEEING: Final = ("chat", "messages", "responses")


def pictures(count: int, size: tuple[int, int] = (3, 2), *, large: dict[int, bytes] | None = None) -> Turns:
    """A picture in each of so many results; then words alone."""

    def turns() -> Iterator[list[Json]]:
        yield [{"role": "user", "content": TASK}]
        for number in range(count):
            content = (large or {}).get(number) or png(*size) + b"%d" % number
            text = {"type": "text", "text": f"page {number}"}
            yield [call(number, "shot"), {**result(number, ""), "content": [text, image_part(content)]}]
        yield [{"role": "assistant", "content": "I have seen them."}, {"role": "user", "content": NEWEST}]

    return turns


def asked(*parts: Json, times: int, first: int = 0) -> Turns:
    """A user who sends these parts again and again, and then words alone."""

    def turns() -> Iterator[list[Json]]:
        for number in range(times):
            text = {"type": "text", "text": TASK if not number else f"And this, {number}?"}
            said = [{"role": "assistant", "content": "I see."}] if number else []
            yield [*said, {"role": "user", "content": [text, *parts]}]
        yield [{"role": "assistant", "content": "I have seen them."}, {"role": "user", "content": NEWEST}]

    return turns


def results(*texts: str, calls: int = 1, arguments: str = "{}") -> Turns:
    """A result of each text; then words alone."""

    def turns() -> Iterator[list[Json]]:
        yield [{"role": "user", "content": TASK}]
        for number, text in enumerate(texts):
            ids = [number * 1_000 + one for one in range(calls if number == 1 else 1)]
            made = call(ids[0], arguments=arguments if number == 1 else "{}")
            made["tool_calls"] = [
                call(one, arguments=arguments if number == 1 else "{}")["tool_calls"][0] for one in ids
            ]
            yield [made, *(result(one, text) for one in ids)]
        yield [{"role": "assistant", "content": "I have read them."}, {"role": "user", "content": NEWEST}]

    return turns


LONG: Final = "A line of the log. " * 1_600
PAGE: Final = "One page of it. " * 60
STEPS, MANY_CALLS = results(*["x"] * 30), results("x", "y", "z", "z", calls=20)
TEXTS: Final = results(PAGE, LONG, PAGE, LONG, PAGE)
LONG_ARRAY: Final = (
    "array too long. Expected an array with maximum length {limit}, but got an array with length {seen} instead."
)
OF_ARRAYS: Final = {"code": "array_above_max_length"}
LONG_STRING: Final = (
    "string too long. Expected a string with maximum length {limit}, but got a string with length {seen} instead."
)
ENDPOINT: Final = (
    "This endpoint's maximum context length is {limit} tokens. However, you requested about {total} tokens ({prompt} "
    "of text input, {reply} in the output). Please reduce the length of either one"
)


@dataclass
class Row:
    """One limit, and an agent that meets it."""

    what: str
    limit: int
    says: str
    turns: Turns
    apis: tuple[str, ...] = CHAT
    status: int = 400
    refusals: int = 1
    members: Json | None = None
    """More of the request."""
    error: Json | None = None
    """More of the error."""


def too_long(path: str) -> Json:
    return {"code": "string_above_max_length", "param": path}


ROWS: Final = [
    # how many images
    Row("images", 4, "Image count {seen} exceeds limit {limit} per request.", pictures(8), SEEING),
    Row("images", 4, "a request carries at most {limit} images. (param: body)", pictures(8), SEEING),
    Row("images", 5, "At most {limit} image(s) may be provided in one prompt.", pictures(8), ALL),
    Row("images", 5, "At most {limit} image(s) may be provided in one request.", pictures(8), SEEING),
    Row("images", 5, "Too many images provided. This model supports up to {limit} images", pictures(8), ("chat",)),
    Row("images", 5, "Too many images: {seen} > {limit}", pictures(8), SEEING),
    Row("images", 5, "messages: too many images in request: {seen}. The maximum is {limit}.", pictures(8), SEEING),
    Row("images", 5, "图片数量超过限制，最多支持{limit}张图片", pictures(8), SEEING),
    Row("images", 8, "Please use fewer than {limit} images: {seen}", pictures(12), SEEING, refusals=1),
    Row(
        "images",
        50,
        "[invalid_request_error] request contains {seen} images, exceeding the maximum of {limit} allowed per request",
        pictures(55),
        ("responses",),
    ),
    Row("media", 100, "Too many images and documents: {seen} + 0 > {limit}", pictures(104), ("messages",)),
    Row("images", 2, "At most {limit} image(s) may be provided in one request.", asked(image_part(), times=5), ALL),
    Row("sounds", 2, "At most {limit} audio(s) may be provided in one request.", asked(audio_part(WAV), times=5)),
    Row("documents", 2, "Too many documents: {seen}. Maximum is {limit}.", asked(file_part(PDF), times=5)),
    # how large one is
    Row(
        "pixels",
        8_000,
        "messages.4.content.0.image.source.base64.data: At least one of the image dimensions exceed max allowed size: "
        "{limit} pixels",
        pictures(6, large={2: png(9_000, 20)}),
        ("messages", "chat", "responses"),
    ),
    Row(
        "image bytes",
        200_000,
        "messages.3.content.0.image.source.base64: image exceeds 5 MB maximum: {seen} bytes > {limit} bytes",
        pictures(5, large={1: png() + b"\1" * 300_000}),
        ("messages", "chat", "responses"),
    ),
    Row(
        "media bytes",
        100_000,
        "The total size of all images is {seen} bytes, which exceeds the limit of {limit} bytes",
        pictures(8, large={number: png() + b"%d" % number * 30_000 for number in range(8)}),
        SEEING,
    ),
    # items
    Row("messages", 40, "Input validation failed: Too many messages: {seen} exceeds limit of {limit}", STEPS),
    Row(
        "messages",
        40,
        '[{{"type": "too_long", "loc": ["body", "messages"], "msg": "List should have at most {limit} items"}}]',
        STEPS,
    ),
    Row("messages", 30, "The number of messages ({seen}) exceeds the maximum of {limit}.", STEPS, ALL),
    Row("messages", 40, f"Invalid 'input': {LONG_ARRAY}", STEPS, ("responses", "chat"), error=OF_ARRAYS),
    Row("calls", 16, f"Invalid 'messages[3].tool_calls': {LONG_ARRAY}", MANY_CALLS, error=OF_ARRAYS),
    Row(
        "parts",
        16,
        f"Invalid 'messages[2].content': {LONG_ARRAY}",
        asked(*[{"type": "text", "text": f"Part {number}."} for number in range(20)], times=3),
        SEEING,
    ),
    Row(
        "parts",
        16,
        "Too many content parts: {seen}. Maximum is {limit}",
        asked(*[part for _ in range(10) for part in ({"type": "text", "text": "Look."}, image_part())], times=3),
        SEEING,
    ),
    # one string
    Row("string", 6_000, "Content length {seen} exceeds the maximum of {limit} characters per message", TEXTS),
    Row("characters", 27_000, "Your message exceeds the maximum length of {limit} characters", results(*[PAGE] * 40)),
    Row("string", 6_000, "String should have at most {limit} characters", TEXTS, SEEING, 422),
    Row(
        "string",
        6_000,
        "String value length (30000) exceeds the maximum allowed ({limit}, from "
        "`StreamReadConstraints.getMaxStringLength()`)",
        TEXTS,
        ALL,
    ),
    Row(
        "string",
        6_000,
        f"Invalid 'messages[3].content': {LONG_STRING}",
        TEXTS,
        ("chat", "responses"),
        error=too_long("messages[3].content"),
    ),
    Row(
        "string",
        6_000,
        f"Invalid 'input[3].arguments': {LONG_STRING}",
        results(PAGE, PAGE, PAGE, arguments=json.dumps({"path": "a.txt", "content": LONG})),
        ("chat", "responses"),
        error=too_long("input[3].arguments"),
    ),
    # the reply
    Row(
        "reply",
        16_384,
        "max_tokens is too large: {seen}. This model supports at most {limit} completion tokens, whereas you provided "
        "{seen}.",
        results(PAGE, PAGE),
        members={"max_tokens": 32_000},
    ),
    Row(
        "reply",
        8_192,
        "max_tokens: {seen} > {limit}, which is the maximum allowed number of output tokens for claude-3-5-sonnet",
        results(PAGE, PAGE),
        ("messages", "chat"),
        members={"max_tokens": 32_000},
    ),
    Row("reply", 8_192, "Range of max_tokens should be [1, {limit}]", results(PAGE), members={"max_tokens": 32_000}),
    Row(
        "total",
        24_000,
        "Prompt tokens ({prompt}) plus max_tokens ({reply}) must be less than or equal to {limit}",
        results(*[PAGE] * 6),
        members={"max_tokens": 32_000},
    ),
    Row(
        "total",
        24_000,
        "Requested {reply} tokens for the completion but the context window is only {limit} tokens",
        results(*[PAGE] * 6),
        members={"max_tokens": 32_000},
    ),
    Row(
        "total",
        24_000,
        "This model's maximum context length is {limit} tokens. However, you requested {reply} output tokens and your "
        "prompt contains at least -7999 input tokens, for a total of at least 24001 tokens. Please reduce the length "
        "of the input prompt or the number of requested output tokens.",
        results(*[PAGE] * 6),
        members={"max_tokens": 32_000},
    ),
    Row(
        "total",
        24_000,
        "'max_tokens' or 'max_completion_tokens' is too large: {reply}. This model's maximum context length is {limit} "
        "tokens and your request has {prompt} input tokens ({reply} > {limit} - {prompt}).",
        results(*[PAGE] * 6),
        members={"max_tokens": 32_000},
    ),
    Row(
        "total",
        9_000,
        f"{ENDPOINT}, or use the context-compression plugin to compress your prompt automatically.",
        results(*[PAGE] * 9),
        members={"max_tokens": 8_700},
    ),
    Row("total", 9_000, f"{ENDPOINT}.", results(*[long_text(150)] * 9), refusals=2, members={"max_tokens": 9_000}),
]


def requests(row: Row, api: str) -> Iterator[Json]:
    """The request of each turn."""
    messages: list[Json] = []
    for new in row.turns():
        messages += new
        members = dict(row.members or {})
        yield SPELLED[api][1]({"model": "m", "messages": messages}) | members


@dataclass
class Outcome:
    """What became of the turns."""

    statuses: list[int]
    sends: list[int]
    refusals: int
    last: str


def played(world: World, upstream: ScriptedModel, row: Row, api: str, *, stream: bool = False) -> Outcome:
    statuses, sends = [], []
    for body in requests(row, api):
        before = len(upstream.sent)
        answer = world.ask({**body, "stream": stream}, path=SPELLED[api][0])
        statuses.append(answer.status_code)
        sends.append(len(upstream.sent) - before)
    return Outcome(statuses, sends, upstream.refusals, json.dumps(upstream.last.messages))


def scripted(row: Row, api: str) -> ScriptedModel:
    rule: Rule = Over(row.what, row.limit, row.says, row.status, members=row.error or {})
    return ScriptedModel([valid, rule], words("Done."), [FACES[api]])


NAMES = [(row, api) for row in ROWS for api in row.apis]


@pytest.mark.parametrize(("row", "api"), NAMES, ids=[f"{api}-{row.what}-{at}" for at, (row, api) in enumerate(NAMES)])
def test_a_named_limit_costs_one_refusal_and_no_turn(build: Any, row: Row, api: str) -> None:
    upstream = scripted(row, api)
    found = played(build(behind=upstream, defaults={}), upstream, row, api)
    assert set(found.statuses) == {200}, found
    assert max(found.sends) <= 2, found
    assert found.refusals <= row.refusals, found
    assert TASK in found.last
    assert NEWEST in found.last


@pytest.mark.parametrize("what", sorted({row.what for row in ROWS}))
def test_a_proxy_that_starts_anew_sends_the_same_bytes(tmp_path: Path, what: str) -> None:
    row = next(row for row in ROWS if row.what == what)
    api, bodies = row.apis[0], list(requests(row, row.apis[0]))
    upstream = scripted(row, api)
    with listening(upstream) as url:
        setting = [{"upstream": {"base_url": url}, "defaults": {}}]
        with world(tmp_path, upstream, setting) as warm:
            assert {warm.ask(body, path=SPELLED[api][0]).status_code for body in bodies} == {200}
        sent, before = upstream.last.body, len(upstream.sent)
        with world(tmp_path, upstream, setting) as cold:
            assert cold.ask(bodies[-1], path=SPELLED[api][0]).status_code == 200
    assert upstream.last.body == sent
    assert len(upstream.sent) == before + 1


MANY = "At least one of the image dimensions exceed max allowed size for many-image requests: {limit} pixels"


@pytest.mark.parametrize("api", SEEING)
def test_a_large_picture_among_many_is_described_and_the_others_stay(build: Any, api: str) -> None:
    row = Row("pixels", 2_000, MANY, pictures(24, large={2: png(2_304, 1_316)}))
    over = Over(row.what, row.limit, row.says)
    upstream = ScriptedModel([valid, lambda sent: over(sent) if sent.measured("images") > 20 else None])
    found = played(build(behind=upstream, defaults={}), upstream, row, api)
    assert set(found.statuses) == {200}, found
    assert (found.refusals, max(found.sends)) == (1, 2)
    assert upstream.last.measured("images") == 23


@pytest.mark.parametrize("api", SEEING)
@pytest.mark.parametrize(
    "says",
    [
        "Could not process image",
        "Invalid image data.",
        "Failed to load image or audio file",
        "The image data you provided does not represent a valid image.",
        "The image was specified using the image/png media type, but the image appears to be a image/jpeg image",
        "Multimodal file size is too large",
        "absolute aspect ratio must be smaller than 200, got 300.0",
        "The decoder prompt contains a(n) image item with length 16384, which exceeds the pre-allocated encoder cache "
        "size 8192.",
    ],
)
def test_one_picture_that_cannot_be_processed_is_described_and_the_others_stay(build: Any, api: str, says: str) -> None:
    row = Row("image bytes", 200_000, says, pictures(6, large={2: png() + b"\1" * 300_000}))
    upstream = scripted(row, api)
    found = played(build(behind=upstream, defaults={}), upstream, row, api)
    assert set(found.statuses) == {200}, found
    assert (found.refusals, max(found.sends)) == (1, 2), found
    assert upstream.last.measured("images") == 5


@pytest.mark.parametrize("is_configured", [False, True])
def test_exchanges_with_screenshots_of_a_computer_go_oldest_first(build: Any, is_configured: bool) -> None:
    upstream = ScriptedModel([Over("images", 4, "request contains {seen} images, exceeding the maximum of {limit}")])
    models = [{"match": "*", "max_images": 4}] if is_configured else []
    world = build(behind=upstream, defaults={}, models=models)
    items: list[Json] = [{"role": "user", "content": TASK}]
    for number in range(14):
        url = image_part(png() + b"%d" % number)["image_url"]["url"]
        action = {"type": "click", "x": number, "y": 2, "button": "left"}
        items += [
            {"type": "computer_call", "id": f"cu_{number}", "call_id": f"call_{number}", "action": action},
            {
                "type": "computer_call_output",
                "call_id": f"call_{number}",
                "output": {"type": "computer_screenshot", "image_url": url},
            },
        ]
        answer = world.ask({"model": "m", "input": items, "store": False}, path="/responses")
        assert answer.status_code == 200, answer.text
        assert f'"call_{number}"' in upstream.last.text
    items += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": NEWEST}]
    assert world.ask({"model": "m", "input": items, "store": False}, path="/responses").status_code == 200
    assert upstream.refusals == (0 if is_configured else 1)
    assert TASK in upstream.last.text


def test_only_the_texts_over_a_limit_are_cut_to_it_and_no_exchange_goes(build: Any) -> None:
    row = Row("string", 6_000, "String should have at most {limit} characters", TEXTS)
    upstream = scripted(row, "chat")
    world = build(behind=upstream, defaults={})
    played(world, upstream, row, "chat")
    texts = [one["content"] for one in upstream.last.messages if one["role"] == "tool"]
    assert [text == PAGE for text in texts] == [True, False, True, False, True]
    assert all(4_000 < len(text) <= 6_000 for text in texts if text != PAGE)
    assert LONG.encode() in world.kept.values()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (429, "Extra usage is required for long context requests."),
        (400, "The long context beta is not yet available for this subscription."),
        (429, "Long context requests (over 200K tokens) require usage tier 4."),
        (429, "Extra usage is required for 1M context. Enable extra usage at claude.ai/settings/usage"),
        (400, "The 1M context window beta is not available for your organization"),
    ],
)
def test_a_tier_without_long_context_means_two_hundred_thousand_tokens(build: Any, status: int, says: str) -> None:
    upstream = ScriptedModel([Over("prompt", 200_000, says, status)], words("Done."), [FACES["messages"]])
    world = build(behind=upstream, defaults={})
    text = "".join(f"{number} lines of the log were read, and none was wrong.\n" for number in range(950))
    messages: list[Json] = [{"role": "user", "content": TASK}]
    for number in range(18):
        messages += [call(number), result(number, text)]
    sends = []
    for _ in range(3):
        before = len(upstream.sent)
        body = SPELLED["messages"][1]({"model": "claude-opus-4-6", "messages": messages})
        answer = world.ask(body, path="/messages", anthropic_beta="context-1m-2025-08-07")
        assert answer.status_code == 200, answer.text
        sends.append(len(upstream.sent) - before)
        messages += [{"role": "assistant", "content": "I see."}, {"role": "user", "content": NEWEST}]
    assert sends[0] == 2
    assert sends[-1] == 1
    assert {one.headers[b"anthropic-beta"] for one in upstream.sent} == {b"context-1m-2025-08-07"}
    assert upstream.sent[1].tokens < 200_000


@pytest.mark.parametrize("api", SEEING)
def test_a_reply_limit_that_shrinks_with_the_prompt_costs_a_second_send_in_few_turns(build: Any, api: str) -> None:
    def rule(sent: Any) -> Any:
        left, asked = 24_000 - sent.tokens, int(sent.measured("reply"))
        return (
            sent.face.error(f"max_tokens must be at least 1 and at most {left}, got {asked}") if asked > left else None
        )

    upstream = ScriptedModel([valid, rule], words("Done."), [FACES[api]])
    member = "max_output_tokens" if api == "responses" else "max_tokens"
    row = Row("total", 24_000, "", results(*[PAGE * 4] * 12), members={member: 32_000})
    found = played(build(behind=upstream, defaults={}), upstream, row, api)
    assert set(found.statuses) == {200}, found
    assert max(found.sends) == 2
    assert found.sends.count(2) <= (3 if api == "messages" else 2), "whose tokens are only estimated"


def test_bytes_of_an_image_that_are_counted_as_base64_are_read_as_such(build: Any) -> None:
    large = png() + b"\1" * 36_000
    encoded = len(base64_of(large))
    words_of = f"messages.3.content.0.image.source.base64: image exceeds 5 MB maximum: {encoded} bytes > 40000 bytes"

    def rule(sent: Any) -> Any:
        return sent.face.error(words_of) if base64_of(large) in sent.text else None

    upstream = ScriptedModel([valid, rule], words("Done."), [FACES["messages"]])
    row = Row("image bytes", 40_000, "", pictures(5, large={1: large}))
    found = played(build(behind=upstream, defaults={}), upstream, row, "messages")
    assert set(found.statuses) == {200}, found
    assert (found.sends.count(2), upstream.last.measured("images")) == (1, 4)


@pytest.mark.parametrize("api", ALL)
@pytest.mark.parametrize("what", ["images", "messages", "string"])
def test_the_same_holds_for_streams_and_for_refusals_in_them(build: Any, api: str, what: str) -> None:
    row = next(row for row in ROWS if row.what == what and api in row.apis)
    arrives = "body" if api == "ollama" else "first event"
    upstream = ScriptedModel([valid, Over(what, row.limit, row.says, arrives=arrives)], words("Done."), [FACES[api]])
    found = played(build(behind=upstream, defaults={}), upstream, row, api, stream=True)
    assert set(found.statuses) == {200}, found
    assert (found.refusals, max(found.sends)) == (1, 2), found
