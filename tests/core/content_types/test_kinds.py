from __future__ import annotations

import pytest
from support.made_files import (
    ADTS_FRAME,
    FILES,
    MP3_FRAME,
)

from proxy.core.content_types import (
    ContentKind,
    audio_format,
    kind_claimed,
    media_type,
    modality_of,
)
from proxy.core.models.profile import Modality


@pytest.mark.parametrize(
    ("kind", "modality"),
    [
        (ContentKind.IMAGE, Modality.VISION),
        (ContentKind.AUDIO, Modality.AUDIO),
        (ContentKind.VIDEO, Modality.VIDEO),
        (ContentKind.DOCUMENT, Modality.FILE),
        (ContentKind.OTHER, Modality.FILE),
        (ContentKind.TEXT, Modality.TEXT),
    ],
)
def test_each_kind_has_a_modality(kind, modality):
    assert modality_of(kind) is modality


@pytest.mark.parametrize("modality", Modality)
def test_what_is_claimed_to_be_read_so_is_of_a_kind_that_is_read_so(modality):
    assert modality_of(kind_claimed(modality)) is modality


@pytest.mark.parametrize(
    ("content", "said"), [(MP3_FRAME * 3, "mp3"), (ADTS_FRAME * 4, "aac"), (FILES["wav"][1], "wav")]
)
def test_a_sound_has_a_format(content, said):
    assert audio_format(media_type(content)) == said
