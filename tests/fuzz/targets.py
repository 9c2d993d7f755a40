"""Fuzz targets and their stored cases: a file each in `corpus/TARGET/`.

Rule: a case is bytes, so what is found is a file as it is, and every file is tried again in `make test`.
"""

from __future__ import annotations

import contextlib
import hashlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drawn import rules
from fuzz import (
    artifact_queries,
    chat_requests,
    chat_streams,
    conversations,
    messages_requests,
    messages_streams,
    ollama_requests,
    ollama_streams,
    refusals,
    responses_requests,
    responses_streams,
)
from hypothesis.strategies import SearchStrategy

CORPUS: Final = Path(__file__).parent / "corpus"
CPU_SECONDS: Final = 20.0
"""For one case, of which none is longer than some 100 KB: what takes longer does not end, or is far from linear. Of the
process's own time, so that other work on the machine does not count."""


class TakesTooLong(AssertionError):
    """A case has taken more than `CPU_SECONDS`."""


@dataclass(frozen=True)
class Target:
    """One part of the product that reads what strangers write."""

    name: str
    cases: SearchStrategy[bytes]
    rules: Callable[[bytes], None]

    @property
    def folder(self) -> Path:
        """Folder of its cases."""
        return CORPUS / self.name

    def check(self, case: bytes) -> None:
        """Raises AssertionError for a broken rule; whatever else is raised is a defect, too."""
        with _bounded():
            self.rules(case)

    def keep(self, case: bytes) -> Path:
        """Put what was found among the cases."""
        path = self.folder / f"found-{hashlib.sha256(case).hexdigest()[:12]}"
        path.write_bytes(case)
        return path


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TakesTooLong(f"more than {CPU_SECONDS:.0f} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


TARGETS: Final = {
    target.name: target
    for target in (
        Target("chat-requests", chat_requests.CASES, chat_requests.RULES.check),
        Target("chat-streams", chat_streams.CASES, chat_streams.RULES.check),
        Target("messages-requests", messages_requests.CASES, messages_requests.RULES.check),
        Target("messages-streams", messages_streams.CASES, messages_streams.RULES.check),
        Target("ollama-requests", ollama_requests.CASES, ollama_requests.RULES.check),
        Target("ollama-prompts", ollama_requests.PROMPTS, ollama_requests.PROMPT_RULES.check),
        Target("ollama-streams", ollama_streams.CASES, ollama_streams.RULES.check),
        Target("responses-requests", responses_requests.CASES, responses_requests.RULES.check),
        Target("responses-streams", responses_streams.CASES, responses_streams.RULES.check),
        Target("refusals", refusals.CASES, refusals.check),
        Target("queries", artifact_queries.CASES, artifact_queries.check),
        Target("conversations", conversations.CASES, rules.check),
    )
}
