from __future__ import annotations

import pytest

from proxy.core.overflow import ErrorReport, ErrorText, VerdictKind, judge


def judged(status, message):
    return judge(ErrorReport(status, texts=(ErrorText("error.message", message),)))


@pytest.mark.parametrize(
    ("status", "message", "refused"),
    [
        (400, "Invalid content type. image_url is only supported by certain models.", {"vision"}),
        (404, "No endpoints found that support image input", {"vision"}),
        (404, "No endpoints found that support input audio", {"audio"}),
        (422, "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 120041", {"vision"}),
        (422, "unknown variant `file`, expected one of `text`, `image_url`", {"file"}),
        (400, "Invalid value: 'input_audio'. Supported values are: 'text', 'image_url'.", {"audio"}),
        (
            500,
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            {"vision"},
        ),
        (
            500,
            "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            {"audio"},
        ),
        (400, "google/gemma-2b is not a multimodal model", set()),
        (400, "At most 0 image(s) may be provided in one prompt.", {"vision"}),
        (400, "This model does not support image or video inputs.", {"vision", "video"}),
        (400, "This model does not support file inputs.", {"file"}),
        (415, "PDF documents are not supported", {"file"}),
        (400, "该模型不支持音频输入", {"audio"}),
    ],
)
def test_a_refusal_of_media_names_the_kinds_that_the_model_does_not_read(status, message, refused):
    verdict = judged(status, message)
    assert verdict.kind is VerdictKind.MEDIA
    assert {kind.value for kind in verdict.refused} == refused
    assert verdict.refuses_model


@pytest.mark.parametrize(
    "message",
    [
        "You uploaded an unsupported image. Please make sure your image is valid.",
        "unsupported image format: image/tiff is not supported",
        "The image could not be processed: images in role 'tool' are not supported.",
        "Unsupported MIME type: image/x-icon; images of it are not supported",
    ],
)
def test_a_refusal_of_one_content_says_nothing_of_the_model(message):
    verdict = judged(400, message)
    assert verdict.kind is VerdictKind.MEDIA
    assert not verdict.refuses_model


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "At most 5 image(s) may be provided in one prompt.", VerdictKind.COUNT),
        (400, "Image is too large: 9000 pixels", VerdictKind.FIELD),
        (429, "Too many requests with images, which are not supported", VerdictKind.RATE),
    ],
)
def test_refusals_that_only_mention_media_stay_what_they_are(status, message, kind):
    assert judged(status, message).kind is kind
