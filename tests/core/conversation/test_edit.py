from __future__ import annotations

import json
import pickle

import pytest

from proxy.core.conversation.edit import Reason


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_its_name_wherever_it_is_written(reason: Reason) -> None:
    assert Reason(reason.value) is reason
    assert f"{reason}={json.dumps(reason)}" == f'{reason.value}="{reason.value}"'
    assert pickle.loads(pickle.dumps(reason)) is reason


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_has_words_for_one_change_and_for_several(reason: Reason) -> None:
    assert "#" not in reason.one
    assert reason.several == reason.one or reason.several.count("#") == 1
