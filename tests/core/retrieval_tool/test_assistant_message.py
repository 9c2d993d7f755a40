from __future__ import annotations

import pytest

from proxy.core.retrieval_tool.assistant_message import AssistantMessage, OwnCall

OWN = OwnCall(0, "c1", "SECRET", b"SECRET")


@pytest.mark.parametrize(
    ("own", "others", "is_mixed"),
    [((), (), False), ((OWN,), (), False), ((), (b"{}",), False), ((OWN,), (b"{}",), True)],
)
def test_a_message_is_mixed_where_both_the_proxy_and_the_client_have_a_call_to_answer(own, others, is_mixed):
    assert AssistantMessage(b"{}", own, others, [], {}).is_mixed is is_mixed


def test_what_a_model_said_is_not_printed():
    assert "SECRET" not in repr(AssistantMessage(b"SECRET", (OWN,), (b"SECRET",), "SECRET", {"content": "SECRET"}))
