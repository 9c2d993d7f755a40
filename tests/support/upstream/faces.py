"""The APIs that a scripted model can be behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from support.upstream.chat import Chat
from support.upstream.messages import Messages
from support.upstream.ollama import Ollama
from support.upstream.responses import Responses
from support.upstream.script import Face

FACES: Final[Mapping[str, Face]] = {face.name: face for face in (Chat(), Messages(), Responses(), Ollama())}
