from __future__ import annotations

import pytest

from proxy.core.models.profile import Modality, ModelProfile, Witness


@pytest.mark.parametrize(
    ("stated", "refused", "reads"),
    [
        (None, frozenset(), None),
        (None, {Modality.VISION}, False),
        ({Modality.VISION}, frozenset(), True),
        ({Modality.TEXT}, frozenset(), False),
        ({Modality.VISION}, {Modality.VISION}, False),
        ({Modality.VISION}, {Modality.AUDIO}, True),
    ],
)
def test_a_refusal_counts_for_more_than_what_is_stated_and_nothing_is_neither_yes_nor_no(stated, refused, reads):
    modalities = None if stated is None else frozenset(stated)
    assert ModelProfile("m", modalities=modalities, refused=frozenset(refused)).reads(Modality.VISION) is reads


@pytest.mark.parametrize("witness", Witness)
def test_a_window_is_certain_where_somebody_who_must_know_has_told_it(witness):
    profile = ModelProfile("m", window_tokens=9, witness=witness)
    assert profile.window_is_guessed is (witness is Witness.GUESSED)
    assert profile.certain_window_tokens == (9 if witness in (Witness.STATED, Witness.LEARNED) else None)
