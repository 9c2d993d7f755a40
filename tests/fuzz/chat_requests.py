"""Request bodies: read, planned and written again.

Rule: what is read is what was sent. What fits goes as the very bytes; what is planned keeps calls and results paired.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fuzz.mutations import damaged, mutated, spelled
from hypothesis import strategies as st
from support.strategies import ODD_MESSAGES, any_histories, pairing_faults, valid_histories

from proxy.config.settings import Settings
from proxy.core.models.profile import ModelProfile
from proxy.core.notices.artifact_access import ArtifactAccess
from proxy.core.text import jsontext
from proxy.errors import MalformedRequest, ProxyError
from proxy.shell.planning.pipelines import Pipelines
from proxy.shell.planning.plan_inputs import SendTerms
from proxy.shell.planning.planned import Planned
from proxy.shell.planning.planner import Planner
from proxy.wire.chat_completions.wire import CHAT_COMPLETIONS
from proxy.wire.request import Request

_WAY: Final = ArtifactAccess("/data/tool-output")
_NOTE_TOKENS: Final = 0
"""Of the note about what is left out. Where system texts alone are over the room, leaving out a message that is shorter
than the note makes a request longer that fits neither way; to be cured, and this to be 0 then."""
_PICTURE: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_FILE: Final = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}
_PARTS: Final[list[dict[str, Any]]] = [
    {"type": "image_url", "image_url": {"url": _PICTURE, "detail": "high"}},
    {"type": "image_url", "image_url": {"url": "https://pictures.invalid/a.png"}},
    {"type": "input_audio", "input_audio": {"data": "UklGRgAAAABXQVZF", "format": "wav"}},
    {"type": "file", "file": _FILE},
    {"type": "text", "text": f"see {_PICTURE} there", "cache_control": {"type": "ephemeral"}},
    {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
]
_RESPONSE: Final = (
    '{"status": "success", "data": {"rows": [1, 2]}, "text": "two rows", "stats": {"time_ms": 3}, "context": '
    '{"truncation_skip": true}, "error": null}'
)
_MEMBERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m", "gpt-4o", ""]),
        "stream": st.booleans(),
        "max_tokens": st.sampled_from([1, 500, 6_000]),
        "max_completion_tokens": st.sampled_from([1, 500, 6_000]),
        "tools": st.just([{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]),
        "tool_choice": st.sampled_from(["auto", "required", {"type": "function", "function": {"name": "read_file"}}]),
        "n": st.sampled_from([1, 2]),
        "metadata": st.just({"messages": [{"role": "user", "content": "not this one"}]}),
    },
)


@st.composite
def _requests(draw: Any) -> dict[str, Any]:
    messages = list(draw(st.one_of(valid_histories(2), any_histories())))
    for _ in range(draw(st.integers(0, 2))):
        parts = draw(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=3))
        content = draw(st.sampled_from([parts, _RESPONSE, _RESPONSE.replace("true", "false")]))
        message = {"role": draw(st.sampled_from(["user", "tool"])), "tool_call_id": "call_0", "content": content}
        messages.insert(draw(st.integers(0, len(messages))), draw(st.one_of(st.just(message), ODD_MESSAGES)))
    members = {"model": "m", **draw(_MEMBERS)}
    return {**members, "messages": messages} if draw(st.booleans()) else {"messages": messages, **members}


CASES: Final = damaged(spelled(mutated(_requests())))


def check(case: bytes) -> None:
    """Raises AssertionError for a broken rule; whatever else is raised is a defect, too."""
    try:
        request = CHAT_COMPLETIONS.parse(case)
    except MalformedRequest as error:
        CHAT_COMPLETIONS.error(error)
        return
    assert _pieces(CHAT_COMPLETIONS.render(request, request.conversation.messages, {})) == _pieces(case)
    _check_continued(case, request)
    for window, tokenizer in ((1_000, "bytes"), (8_000, "o200k_base")):
        _check_plan(request, window, tokenizer)


def _pieces(body: bytes) -> tuple[dict[str, bytes], list[bytes]]:
    """The bytes of each member, and of each message."""
    members = {name: bytes(raw) for name, raw in jsontext.members(body).items()}
    return members, [bytes(raw) for raw in jsontext.items(members.pop("messages"))]


def _check_continued(case: bytes, request: Request) -> None:
    """Read on from what is known of its first messages, a request is the same."""
    for count in {1, len(request.ends) // 2, len(request.ends)}:
        if 0 < count <= len(request.ends):
            known = CHAT_COMPLETIONS.parse(case[: request.ends[count - 1]] + b"]}")
            shared = known.shared_messages(case)
            again = CHAT_COMPLETIONS.parse(case, known, shared)
            assert again.conversation == request.conversation
            assert (again.model, again.stream, again.reply_limit) == (
                request.model,
                request.stream,
                request.reply_limit,
            )
            assert again.members.keys() == request.members.keys()


@cache
def _planner(window: int, tokenizer: str) -> Planner:
    return Planner(
        Pipelines(Settings()),
        lambda model, _: ModelProfile(model, window, tokenizer=tokenizer),
        lambda *_: (1.0, False),
    )


def _check_plan(request: Request, window: int, tokenizer: str) -> None:
    planner = _planner(window, tokenizer)
    terms = SendTerms(_WAY, CHAT_COMPLETIONS.with_tool(request, "auto"))
    try:
        planned = planner.made(CHAT_COMPLETIONS, request, "owner", terms, {})
    except ProxyError as error:
        raise AssertionError(f"no plan: {error.message}") from error
    _check_sent(request, planned)
    again = planner.made(CHAT_COMPLETIONS, request, "owner", terms, {})
    assert again.body() == planned.body()
    goal = max(1, planned.plan.after.tokens // 2)
    _check_sent(request, planner.made(CHAT_COMPLETIONS, request, "owner", terms._replace(goal_tokens=goal), {}))
    _check_sent(request, planner.made(CHAT_COMPLETIONS, request, "owner", terms._replace(keeping=False), {}))


def _check_sent(request: Request, planned: Planned) -> None:
    sent = planned.body()
    if not planned.changed:
        assert sent is request.body
        return
    messages = [bytes(raw) for raw in jsontext.items(jsontext.members(sent)["messages"])]
    if not pairing_faults([message.raw for message in request.conversation.messages]):
        assert not pairing_faults(messages)
    # For a goal that cannot be met, the retry strategy sees that it is smaller.
    if planned.inputs.terms.goal_tokens is None:
        most = max(planned.plan.before.tokens + _NOTE_TOKENS, planned.plan.budget.room_tokens)
        assert planned.plan.after.tokens <= most
