"""What a body of `/v1/responses` must be, and how OpenAI says that it is not: body → complaints, none if it is valid.

Rule: each complaint has the API's own words where they are known; where only the rule is documented, the words are
ours and are marked so. With `previous_response_id` or `conversation` the server holds what came before: there a result
may stand alone. Nothing here knows of a proxy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Item = Mapping[str, Any]
ROLES = ("assistant", "system", "developer", "user")
SAID_BY_MODEL = ("output_text", "refusal")
SAID_TO_MODEL = ("input_text", "input_image", "input_file", "input_audio")


@dataclass(frozen=True)
class Pair:
    """A call and its result."""

    call: str
    result: str
    what: str
    """As the API calls it; codex#620 and OmniRoute#8946 have seen two of them, the others are ours."""
    key: str = "call_id"
    """Of the call and, if it has it, of the result."""
    result_key: str = "call_id"


PAIRS = (
    Pair("function_call", "function_call_output", "function call"),
    Pair("custom_tool_call", "custom_tool_call_output", "custom tool call"),
    Pair("local_shell_call", "local_shell_call_output", "local shell call", result_key="id"),
    Pair("shell_call", "shell_call_output", "shell call"),
    Pair("apply_patch_call", "apply_patch_call_output", "apply patch call"),
    Pair("computer_call", "computer_call_output", "computer call"),
    Pair("tool_search_call", "tool_search_output", "tool search call"),
    Pair("program", "program_output", "program"),
)
CALLS = {pair.call: pair for pair in PAIRS}
RESULTS = {pair.result: pair for pair in PAIRS}
BY_MODEL = (
    *CALLS,
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
)
"""What a reasoning item may lead to, besides a message of the assistant."""
PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs", "message": "msg"}
MOST_ID_CHARACTERS = 64


def complaints(body: Mapping[str, Any], issued: Sequence[Sequence[Item]] = ()) -> list[str]:
    """What is wrong with a body. `issued`: the outputs that this upstream has answered with; reasoning is then compared
    with what was said."""
    found = ["Missing required parameter: 'model'."] if not body.get("model") else []
    held = bool(body.get("previous_response_id") or body.get("conversation"))
    if body.get("previous_response_id") and body.get("conversation"):
        found.append(
            "Mutually exclusive parameters: Ensure you are only providing one of: 'previous_response_id' or "
            "'conversation'."
        )
    items = items_of(body)
    if not items and not held and not body.get("prompt"):
        return [*found, "Missing required parameter: 'input'."]
    found += [text for number, item in enumerate(items) for text in _shape(number, item)]
    found += _ids(items)
    found += _pairs(items, held=held)
    return [*found, *_reasoning(items, issued), *_places(items)]


def items_of(body: Mapping[str, Any]) -> list[Item]:
    """The input as items."""
    found = body.get("input")
    return [{"role": "user", "content": found}] if isinstance(found, str) and found else list(found or ())


def kind_of(item: Item) -> str:
    """Its type; a message and a reference need not say theirs."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def _shape(number: int, item: Item) -> Iterator[str]:
    kind, at = kind_of(item), f"input[{number}]"
    if kind == "message":
        yield from _message(at, item)
    if kind == "item_reference" and not item.get("id"):
        yield f"Missing required parameter: '{at}.id'."
    if kind in CALLS and kind != "tool_search_call" and not item.get("call_id"):
        yield f"Missing required parameter: '{at}.call_id'."
    if kind in RESULTS and kind != "tool_search_output" and not item.get(RESULTS[kind].result_key):
        yield f"Missing required parameter: '{at}.{RESULTS[kind].result_key}'."
    call_id = item.get("call_id")
    if isinstance(call_id, str) and len(call_id) > MOST_ID_CHARACTERS:
        yield (
            f"Invalid '{at}.call_id': string too long. Expected a string with maximum length {MOST_ID_CHARACTERS}, but "
            f"got a string with length {len(call_id)} instead."
        )
    output = item.get("output")
    if kind in ("function_call_output", "custom_tool_call_output"):
        if output is None:
            yield f"Missing required parameter: '{at}.output'."
        yield from _parts(f"{at}.output", output, SAID_TO_MODEL)
    if kind == "shell_call_output":
        for index, piece in enumerate(output if isinstance(output, list) else [{}]):
            missing = [name for name in ("stdout", "stderr", "outcome") if name not in piece]
            yield from (f"Missing required parameter: '{at}.output[{index}].{name}'." for name in missing)
    if kind == "computer_call_output" and (output or {}).get("type") != "computer_screenshot":
        yield f"Invalid value: '{(output or {}).get('type')}'. Supported values are: 'computer_screenshot'."


def _message(at: str, item: Item) -> Iterator[str]:
    role = item.get("role")
    if role not in ROLES:
        yield f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
    yield from _parts(f"{at}.content", item.get("content"), SAID_BY_MODEL if role == "assistant" else SAID_TO_MODEL)


def _parts(at: str, content: object, allowed: Sequence[str]) -> Iterator[str]:
    for index, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type")
        if kind not in allowed:
            names = ", ".join(f"'{name}'" for name in allowed[:-1])
            yield f"Invalid value: '{kind}'. Supported values are: {names} and '{allowed[-1]}'."
        url = part.get("image_url")
        if kind == "input_image" and not part.get("file_id") and not str(url).startswith(("http", "data:image/")):
            yield (f"Invalid '{at}[{index}].image_url'. Expected a valid URL, but got a value with an invalid format.")


def _ids(items: Sequence[Item]) -> Iterator[str]:
    """nodetool#4252 and openai-agents-python#1789."""
    seen: set[str] = set()
    for number, item in enumerate(items):
        name, prefix = item.get("id"), PREFIXES.get(kind_of(item))
        if not isinstance(name, str) or kind_of(item) in RESULTS:
            continue
        if prefix and not name.startswith(prefix):
            yield f"Invalid 'input[{number}].id': '{name}'. Expected an ID that begins with '{prefix}'."
        if name in seen:
            yield f"Duplicate item found with id {name}. Remove duplicate items from your input and try again."
        seen.add(name)


def _pairs(items: Sequence[Item], *, held: bool) -> Iterator[str]:
    """A result follows its call, at any distance; a custom tool may have several."""
    calls: dict[tuple[str, str], str] = {}
    answered: set[tuple[str, str]] = set()
    referred = {item.get("id") for item in items if kind_of(item) == "item_reference"}
    for item in items:
        kind = kind_of(item)
        if kind in CALLS and item.get("call_id"):
            name = (kind, str(item["call_id"]))
            if name in calls:
                yield f"Duplicate 'call_id': {item['call_id']}"
            calls[name] = CALLS[kind].what
            if kind == "local_shell_call":  # by id as by call_id: Codex does the latter, as a function call's
                calls["local_shell_call", str(item.get("id"))] = ""
        elif kind in RESULTS and item.get(RESULTS[kind].result_key):
            call_id = str(item[RESULTS[kind].result_key])
            options = [RESULTS[kind].call, *(["local_shell_call"] if kind == "function_call_output" else [])]
            matched = [(call, call_id) for call in options if (call, call_id) in calls]
            answered.update(matched)
            if not matched and not held and not referred:
                yield f"No tool call found for {RESULTS[kind].what} output with call_id {call_id}."
    local = {str(i.get("id")): str(i.get("call_id")) for i in items if kind_of(i) == "local_shell_call"}
    answered |= {("local_shell_call", local[name]) for kind, name in answered if name in local}
    for (kind, call_id), what in calls.items():
        if what and (kind, call_id) not in answered:
            yield f"No tool output found for {what} {call_id}."
    programs = {call_id for kind, call_id in calls if kind == "program"}
    for item in items:
        caller = item.get("caller") or {}
        if caller.get("type") == "program" and caller.get("caller_id") not in programs and not held:
            yield f"No program found for {kind_of(item)} with caller_id {caller.get('caller_id')}."  # ours


def _reasoning(items: Sequence[Item], issued: Sequence[Sequence[Item]]) -> Iterator[str]:
    """Reasoning belongs to the next item that is none (openai-agents-python#3207): vercel/ai#7099, continue#12620; what
    it hides comes back as it was: codex#8145."""
    for number, item in enumerate(items):
        if kind_of(item) != "reasoning":
            continue
        next_one = next((other for other in items[number + 1 :] if kind_of(other) != "reasoning"), {})
        if not (next_one.get("role") == "assistant" or next_one.get("type") in BY_MODEL):
            yield (f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.")
    if not issued:
        return
    sealed = {item.get("encrypted_content") for output in issued for item in output}
    given = {item.get("encrypted_content") for item in items if kind_of(item) == "reasoning"}
    for content in given - sealed - {None}:
        yield (
            f"The encrypted content {str(content)[:8]}... could not be verified. Reason: Encrypted content could not "
            "be decrypted or parsed."
        )
    for output in issued:
        thought = next((item for item in output if kind_of(item) == "reasoning"), None)
        if thought is None or not thought.get("encrypted_content") or thought["encrypted_content"] in given:
            continue
        names = {_name(item) for item in output if item is not thought} - {None}
        for item in items:
            if _name(item) in names and kind_of(item) not in RESULTS:
                yield (
                    f"Item '{item.get('id', item.get('call_id'))}' of type '{kind_of(item)}' was provided without its "
                    f"required 'reasoning' item: '{thought.get('id')}'."
                )


def _name(item: Item) -> str | None:
    return item.get("call_id") or item.get("id")


def _places(items: Sequence[Item]) -> Iterator[str]:
    """The type's docstring: it must be the last; the words are ours."""
    if any(kind_of(item) == "compaction_trigger" for item in items[:-1]):
        yield "'compaction_trigger' must be the last item of 'input'."
