"""The rules about media, for any bytes, any declared type, any capability, any nesting."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.media_samples import (
    CSV,
    DOCX,
    JPEG,
    MP4,
    PDF,
    PNG,
    SVG,
    WAV,
    ZIP,
    anthropic_block,
    audio_part,
    base64_of,
    data_url,
    file_part,
    image_part,
    mcp_block,
    png,
    resource_block,
    routing_result,
)
from support.strategies import WAY, conversation, exchange, pairing_faults, part, pipeline, planned, turn_by_turn

from proxy.core.artifact import ARTIFACT_NAME
from proxy.core.compaction import Budget, Cap, compaction_steps, last_resorts
from proxy.core.content_types import media_type
from proxy.core.conversation import Size, size_of
from proxy.core.media import SUMS, RouteMedia, Routes
from proxy.core.models import AgentFileAccess, LimitName, Modality, ToolImages
from proxy.core.notices import Notices
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage

ARTIFACT = re.compile(ARTIFACT_NAME)
thorough = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FILES = [PNG, JPEG, PDF, WAV, MP4, ZIP, DOCX, png(40, 30), PDF * 20]
CONTENTS = st.one_of(
    st.sampled_from([*FILES, SVG, CSV, b"", PNG[:30], PDF[:-9]]),
    st.binary(max_size=300),
    st.builds(lambda file, rest: file + rest, st.sampled_from(FILES), st.binary(max_size=200)),
)
DECLARED = st.one_of(
    st.sampled_from(["image/png", "image/jpeg", "application/pdf", "audio/wav", "text/plain", "png", "", "x/y"]),
    st.text(max_size=12),
)
MODELS = st.one_of(st.none(), st.frozensets(st.sampled_from(list(Modality))))
TARGETS = st.sampled_from(list(ToolImages))


@st.composite
def media_parts(draw):
    content, declared = draw(CONTENTS), draw(DECLARED)
    return draw(
        st.sampled_from(
            [
                image_part(content, declared),
                {"type": "image_url", "image_url": {"url": base64_of(content)}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                {"type": "video_url", "video_url": {"url": data_url(content, declared)}},
                {"type": "image_url", "image_url": {"url": data_url(content, declared)[:-3] + "…"}},
                file_part(content, declared, "a.bin"),
                {"type": "file", "file": {"file_id": "file-1"}},
                audio_part(content, declared),
                mcp_block(content, declared),
                anthropic_block(content, declared),
                resource_block(content, declared, "file:///a/b.bin"),
            ]
        )
    )


@st.composite
def binary_texts(draw):
    """Texts that hold contents, one inside the other."""
    content, declared = draw(CONTENTS), draw(DECLARED)
    text = draw(
        st.sampled_from(
            [
                f"before {data_url(content, 'image/png')} after",
                base64_of(content),
                json.dumps({"content": [mcp_block(content, declared), part("words")]}),
                json.dumps({"status": "success", "data": {"blob": base64_of(content), "mimeType": declared}}),
                json.dumps([anthropic_block(content, declared)]),
                routing_result(content, declared),
                content.decode("utf-8", "replace"),
                draw(st.text(max_size=40)),
            ]
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        text = draw(st.sampled_from([json.dumps({"deeper": text}), json.dumps([text, "x"]), f"{text}\n{text}"]))
    return text


TEXTS = binary_texts()
CONTENT = st.one_of(TEXTS, st.lists(st.one_of(media_parts(), TEXTS.map(part)), max_size=4))


@st.composite
def histories(draw):
    found = [{"role": "system", "content": "You help."}]
    for turn in range(draw(st.integers(1, 2))):
        found.append({"role": "user", "content": draw(CONTENT)})
        for _ in range(draw(st.integers(0, 2))):
            results = draw(st.lists(CONTENT, min_size=1, max_size=3))
            found += exchange(results, first_call=len(found) * 100)
        if turn == 0:
            found.append({"role": "assistant", "content": draw(CONTENT)})
    if found[-1]["role"] == "assistant":
        found.append({"role": "user", "content": "go on"})
    return found


def made_with(reads, target, budget=None, **routes):
    """The pipeline as the shell puts it together."""
    every = pipeline(budget or Budget(1_000_000))

    def showing(images):
        return RouteMedia(Routes(reads, **{**routes, "max_images": images}), target), *every.local

    resorts = last_resorts(every.notices, every.budget, showing, every.counter)
    return replace(every, local=(RouteMedia(Routes(reads, **routes), target), *every.local), last_resorts=resorts)


def sent(plan):
    return [ChatMessage.read(raw) for raw in plan.messages]


def model_texts(message):
    return message.text().split("\n")


@given(histories(), MODELS, TARGETS)
@thorough
def test_nothing_raises_pairs_stay_whole_and_the_size_is_measured(history, reads, target):
    found = conversation(history)
    made = planned(found, made_with(reads, target))
    assert pairing_faults([message.raw for message in found]) == []
    assert pairing_faults(list(made.messages)) == []
    assert made.after == sum((size_of(message, ByteClassCounter()) for message in sent(made)), Size())


@given(histories(), MODELS, TARGETS)
@thorough
def test_planning_twice_changes_nothing(history, reads, target):
    made = planned(history, made_with(reads, target))
    again = planned([json.loads(raw) for raw in made.messages], made_with(reads, target))
    assert again.edits == ()


@given(histories(), MODELS, TARGETS)
@thorough
def test_what_is_sent_does_not_depend_on_what_follows(history, reads, target):
    found = conversation(history)
    every = made_with(reads, target)
    whole = list(planned(found, every).messages)
    for count, shorter in enumerate(turn_by_turn(found, every)):
        if count and found[count - 1].role in ("system", "user"):
            assert whole[: len(shorter.messages)] == list(shorter.messages)


@given(histories(), TARGETS)
@thorough
def test_for_an_unknown_model_every_part_stays(history, target):
    def without_text(content):
        return [one for one in content if "text" not in one] if isinstance(content, list) else []

    for message, after in zip(
        conversation(history), sent(planned(history, made_with(None, ToolImages.KEEP))), strict=True
    ):
        assert without_text(message.content()) == without_text(after.content())


@given(histories(), MODELS, TARGETS, st.sampled_from([60, 400, 3_000, 1_000_000]))
@thorough
def test_no_text_that_is_sent_contains_a_files_base64_and_no_cut_brings_it_back(history, reads, target, room):
    made = planned(history, made_with(reads, target, Budget(room)))
    needles = [base64_of(file)[:60] for file in FILES]
    for message in sent(made):
        for text in model_texts(message):
            assert not [needle for needle in needles if needle in text]
    assert pairing_faults(list(made.messages)) == []


def worded(every, words):
    """The same steps with other notices."""
    resorts = last_resorts(words, every.budget, lambda _: every.local, every.counter)
    return replace(
        every,
        notices=words,
        compaction_steps=compaction_steps(words, every.budget, lambda _: every.local, every.counter),
        last_resorts=resorts,
    )


@given(
    histories(), MODELS, TARGETS, st.sampled_from([60, 400, 1_500, 4_000, 1_000_000]), st.integers(-1, 4), st.booleans()
)
@thorough
def test_every_artifact_that_a_description_names_is_kept_before_the_request_is_sent(
    history, reads, target, room, max_images, kept
):
    every = made_with(reads, target, Budget(room))
    every = worded(every, Notices("en", WAY, AgentFileAccess.SHELL, kept))
    if max_images >= 0:
        blind = RouteMedia(Routes(reads, max_images=0), target)
        every = replace(every, caps=(Cap(max_images, SUMS[LimitName.IMAGES], (blind, *every.local[1:])),))
    made = planned(history, every)
    names = {name for message in sent(made) for text in model_texts(message) for name in ARTIFACT.findall(text)}
    assert names <= {artifact.id for artifact in made.artifacts}
    assert kept or not names


def test_a_message_whose_description_is_excerpted_or_left_out_or_done_again_names_only_what_is_kept():
    shot = [part("words " * 3_000), *(image_part(png(3, n)) for n in range(2, 8))]
    history = [{"role": "user", "content": shot}, *exchange([shot, shot]), *exchange([shot], first_call=7)]
    for room, max_images in itertools.product((700, 2_000, 6_000, 60_000), (0, 3, 50)):
        every = made_with(frozenset({Modality.TEXT, Modality.VISION}), ToolImages.USER_AFTER_BATCH, Budget(room))
        blind = RouteMedia(Routes(frozenset({Modality.TEXT}), max_images=0))
        every = replace(every, caps=(Cap(max_images, SUMS[LimitName.IMAGES], (blind, *every.local[1:])),))
        made = planned(history, every)
        names = set(ARTIFACT.findall(" ".join(text for message in sent(made) for text in model_texts(message))))
        assert names
        assert names <= {artifact.id for artifact in made.artifacts}


def test_the_samples_are_what_they_seem():
    kinds = [media_type(file).kind.name for file in (PNG, JPEG, PDF, WAV, MP4, ZIP, DOCX, SVG, CSV)]
    assert kinds == ["IMAGE", "IMAGE", "DOCUMENT", "AUDIO", "VIDEO", "OTHER", "DOCUMENT", "IMAGE", "TEXT"]
