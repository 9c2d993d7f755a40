"""How real servers refuse, word for word: one flavour each, with the source of its words.

Rule: nothing here is invented. A flavour says what its server says, counts what it counts, and shows in `/v1/models`
what it shows there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct


class Load(Struct, frozen=True):
    """A request's demand on the window."""

    message_tokens: int
    tool_tokens: int
    """Tokens of the tool definitions."""
    reply_tokens: int | None
    """`max_completion_tokens` or `max_tokens` of the request."""
    window_tokens: int

    @property
    def prompt_tokens(self) -> int:
        return self.message_tokens + self.tool_tokens


class Flavour(Struct, frozen=True):
    """A kind of server."""

    name: str
    counts_reply: bool
    """Whether the requested reply has to fit beside the prompt, or simply ends where the window ends."""
    refusal: Callable[[Load], Mapping[str, Any]]
    """The body of its 400."""
    model_fields: Callable[[int], Mapping[str, Any]]
    """What `/v1/models` says about a window of this many tokens."""

    def accepts(self, load: Load) -> bool:
        """At least one token of the reply has to fit."""
        wanted = load.reply_tokens if self.counts_reply and load.reply_tokens else 1
        return load.prompt_tokens + wanted <= load.window_tokens


def _openai(load: Load) -> dict[str, Any]:
    """All four wordings have been seen on api.openai.com: https://github.com/chathub-dev/chathub/issues/126,
    https://github.com/FoundationAgents/OpenManus/issues/62, and LangChain's guide to query analysis, whose printed
    error has "33885 tokens (33855 in the messages, 30 in the functions)"."""
    start = f"This model's maximum context length is {load.window_tokens} tokens. However, "
    functions = f", {load.tool_tokens} in the functions" if load.tool_tokens else ""
    if load.reply_tokens and load.prompt_tokens < load.window_tokens:
        total = load.prompt_tokens + load.reply_tokens
        reply = f"{', and' if functions else ','} {load.reply_tokens} in the completion"
        parts = "messages, functions, or completion" if functions else "messages or completion"
        counted = f"you requested {total} tokens ({load.message_tokens} in the messages{functions}{reply})"
    else:
        parts = "messages or functions" if functions else "messages"
        split = f" ({load.message_tokens} in the messages{functions})" if functions else ""
        counted = f"your messages resulted in {load.prompt_tokens} tokens{split}"
    message = f"{start}{counted}. Please reduce the length of the {parts}."
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


def _vllm(load: Load) -> dict[str, Any]:
    """vLLM 0.11, vllm/entrypoints/openai/serving_engine.py, `_validate_input`."""
    window, prompt, reply = load.window_tokens, load.prompt_tokens, load.reply_tokens
    if reply and prompt < window:
        message = (
            f"'max_tokens' or 'max_completion_tokens' is too large: {reply}. This model's maximum context length is "
            f"{window} tokens and your request has {prompt} input tokens ({reply} > {window} - {prompt})."
        )
    else:
        message = (
            f"This model's maximum context length is {window} tokens. However, your request has {prompt} input tokens. "
            "Please reduce the length of the input messages."
        )
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}


def _llama_cpp(load: Load) -> dict[str, Any]:
    """llama.cpp, tools/server/server-context.cpp and `format_error_response` in server-common.cpp, 2026."""
    prompt, window = load.prompt_tokens, load.window_tokens
    message = f"request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"
    return {
        "error": {
            "code": 400,
            "message": message,
            "type": "exceed_context_size_error",
            "n_prompt_tokens": prompt,
            "n_ctx": window,
        }
    }


def _dashscope(load: Load) -> dict[str, Any]:
    """https://github.com/QwenLM/qwen-code/issues/98; the range is that of the input; the size sent is not stated."""
    message = (
        f"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {load.window_tokens - 1}]"
    )
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_parameter_error"}
    }


FLAVOURS: Final[Mapping[str, Flavour]] = {
    flavour.name: flavour
    for flavour in (
        Flavour("openai", counts_reply=True, refusal=_openai, model_fields=lambda _: {}),
        Flavour("vllm", counts_reply=True, refusal=_vllm, model_fields=lambda window: {"max_model_len": window}),
        Flavour(
            "llama.cpp",
            counts_reply=False,
            refusal=_llama_cpp,
            model_fields=lambda window: {"meta": {"n_ctx_train": window}},
        ),
        Flavour("dashscope", counts_reply=False, refusal=_dashscope, model_fields=lambda _: {}),
    )
}
"""By name."""
OPENAI: Final = FLAVOURS["openai"]
