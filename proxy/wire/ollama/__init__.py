"""Ollama's own API, which answers by lines of JSON."""

from proxy.wire.ollama.message import OllamaMessage
from proxy.wire.ollama.replies import AnswerBody, AnswerStream
from proxy.wire.ollama.wire import OLLAMA, OLLAMA_PROMPTS

__all__ = [
    "OLLAMA",
    "OLLAMA_PROMPTS",
    "AnswerBody",
    "AnswerStream",
    "OllamaMessage",
]
