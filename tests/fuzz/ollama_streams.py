"""Replies of Ollama in lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from fuzz.streams import StreamRules, damaged_cases
from hypothesis import strategies as st
from support.upstream.ollama import Completion
from support.upstream.ollama_server import OllamaServer

from proxy.core.retrieval_tool import RETRIEVAL_TOOL
from proxy.core.text.jsontext import string_in
from proxy.wire.ollama import OLLAMA
from proxy.wire.ollama.replies import LINES

_ODD_LINES: Final = (
    b"\n",
    b"{}\n",
    b"[1]\n",
    b'{"error":"model runner has unexpectedly stopped"}\n',
    b'{"message":{"role":"assistant","content":7,"tool_calls":{"a":1}},"done":"yes"}\n',
    b'{"message":7,"done":true,"prompt_eval_count":"x"}\n',
)
_CALLS: Final = st.tuples(
    st.sampled_from([RETRIEVAL_TOOL, "read", ""]), st.fixed_dictionaries({"id": st.just("sha256-0")})
)
_REPLIES: Final = st.builds(
    Completion,
    st.text(max_size=60),
    st.sampled_from(["", "Hm, hm, hm."]),
    st.lists(_CALLS, max_size=3),
    st.sampled_from(["stop", "length"]),
)


def _streamed(reply: Completion) -> list[bytes]:
    lines = OllamaServer(replies=[reply]).chat({"model": "m", "messages": [{"role": "user", "content": "Go."}]})
    return [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines]


def _calls(line: Any) -> Iterable[str]:
    message = line.get("message") if isinstance(line, dict) else None
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    found = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [string_in(function, "name") for function in found]


CASES: Final = damaged_cases(_REPLIES.map(_streamed), _ODD_LINES, LINES)
RULES: Final = StreamRules(OLLAMA, _calls, b'"tool_calls"')
