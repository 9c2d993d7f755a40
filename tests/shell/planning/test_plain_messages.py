from __future__ import annotations

import base64
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from support.strategies import any_histories, conversation, exchange, spelled, system, user

from proxy.config.settings import Settings
from proxy.core.compaction.budget import Budget
from proxy.core.compaction.plan import plan
from proxy.core.conversation.size import Size
from proxy.core.models.agent_tools import AgentFileAccess
from proxy.core.models.profile import Modality, ModelProfile
from proxy.core.notices.artifact_access import NOWHERE, ArtifactAccess
from proxy.core.tokens.byte_weights import QWEN
from proxy.core.tokens.counters import ByteClassCounter
from proxy.shell.planning.pipelines import Pipelines
from proxy.shell.planning.plain_messages import KnownPlainMessages
from proxy.shell.resources.shared_table import SharedTable
from proxy.wire.chat_completions.message import ChatMessage
from proxy.wire.messages.message import ApiMessage

COUNTER = ByteClassCounter()
PROFILE = ModelProfile("m", modalities=frozenset[Modality]())
LONG = ChatMessage.read(spelled(user("a long task " * 40)))
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(300)).decode()


class Noting(SharedTable):
    """Says what was looked up in vain and what was found."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[bool] = []

    def get(self, key: bytes) -> tuple[int, int, int] | None:
        figures = super().get(key)
        self.found.append(figures is not None)
        return figures


def pipeline(table, tokens=2_000, *, way=NOWHERE, counter=COUNTER, profile=PROFILE, **settings):
    pipelines = Pipelines(Settings(**settings), table)
    return pipelines.pipeline(profile, Budget(tokens), counter, AgentFileAccess.SHELL, way, keeping=True)


@settings(max_examples=40)
@given(any_histories())
def test_a_plan_is_the_same_whatever_is_known_of_its_messages(history):
    table, messages = SharedTable(), conversation(history)
    alone, _ = plan(messages, Size(), pipeline(None))
    for _ in range(2):
        made, _ = plan(messages, Size(), pipeline(table))
        assert (made.edits, made.messages, made.after, made.before) == (
            alone.edits,
            alone.messages,
            alone.after,
            alone.before,
        )


def test_a_second_worker_reads_no_message_that_the_first_one_has_read():
    table = Noting()
    history = [system("You are an agent. " * 30), user("task " * 90)]
    for number in range(5):
        history += exchange([f"line {number}\n" * 90], first_call=number)
    plan(conversation(history), Size(), pipeline(table, 50_000))
    assert not any(table.found)
    table.found.clear()
    plan(conversation(history), Size(), pipeline(table, 50_000))
    assert table.found == [True] * 7


@pytest.mark.parametrize(
    "terms",
    [
        {"counter": ByteClassCounter(QWEN)},
        {"way": ArtifactAccess(folder="/kept")},
        {"tool_output": {"max_bytes": 3_000}},
        {"tool_output": {"never": ["ls"]}},
        {"models": [{"match": "m", "sanitise": ["control"]}]},
    ],
)
def test_on_other_terms_nothing_is_known(terms):
    table = Noting()
    for made in (pipeline(table), pipeline(table, **terms)):
        plan(conversation([user("task " * 90)]), Size(), made)
    assert table.found == [False, False]


def test_a_message_is_known_by_its_api_its_role_its_tool_and_all_its_bytes():
    known = KnownPlainMessages(SharedTable(), "terms")
    known.note(LONG, "ls", Size(1, 2, 3))
    assert known.size_of(LONG, "ls") == Size(1, 2, 3)
    assert known.size_of(LONG, "cat") is None
    assert known.size_of(ChatMessage.read(LONG.raw.replace(b"a long", b"A long")), "ls") is None
    assert known.size_of(ChatMessage(LONG.raw, "tool"), "ls") is None
    assert known.size_of(ApiMessage.read(LONG.raw), "ls") is None


@pytest.mark.parametrize("url", [f"data:image/png;base64,{PIXEL}", "https://example.org/a.png"])
def test_media_that_one_model_reads_are_still_described_to_another(url):
    table, said = SharedTable(), [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "x" * 300}]
    seeing = ModelProfile("m", modalities=frozenset({Modality.VISION}))
    for profile, is_edited in ((seeing, False), (PROFILE, True)):
        made, _ = plan(conversation([user(said)]), Size(), pipeline(table, profile=profile))
        assert bool(made.edits) is is_edited


def test_neither_is_anything_of_a_result_that_was_cut_or_of_a_short_message():
    table = Noting()
    for _ in range(2):
        plan(conversation([user("short"), *exchange(["line\n" * 99_999])]), Size(), pipeline(table, 500_000))
    assert table.found == [False, False]


def test_the_terms_are_the_same_in_every_process():
    code = (
        "from proxy.shell.planning.plain_messages import _spelled\n"
        "from proxy.config.settings import Settings\n"
        "from proxy.core.models.profile import ModelProfile, Modality\n"
        "from proxy.shell.planning.pipelines import Pipelines\n"
        "made = Pipelines(Settings(tool_output={'never': ['a', 'b', 'c'], 'tools': {'x': {'max_lines': 3}}}))\n"
        "print(_spelled([made._truncate(None, 900), frozenset(Modality)]))\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
    assert "max_lines=3," in told.pop()
