"""Public bug reports, told as files: what the upstream refuses and how it says so. Each is played as a whole
conversation through the proxy: `python -m support.reported_cases FOLDER [ID…]` prints what became of it.

Rule: the words and limits are the file's; only the conversation, which a file tells in prose, is written here.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from support.chat_as_messages import request_as_messages
from support.chat_as_ollama import request_as_ollama
from support.chat_as_responses import request_as_responses
from support.journey import call, long_text, result, world
from support.media_samples import image_part, png
from support.upstream import FACES, Answer, Over, Rule, ScriptedModel, Sent, well_formed, words
from support.upstream.replies import as_json

Json = dict[str, Any]
TASK: Final = "Find out why the build fails."
NEWEST: Final = "Now say in one line what is wrong."
SPELLED: Final[Mapping[str, tuple[str, Callable[[Json], Json]]]] = {
    "chat": ("/chat/completions", dict),
    "messages": ("/messages", request_as_messages),
    "responses": ("/responses", request_as_responses),
    "ollama": ("/api/chat", request_as_ollama),
}
"""The path of each API, and a chat request as it is written there."""


@dataclass
class Script:
    """A conversation and what its upstream checks."""

    turns: Iterable[list[Json]]
    """What each turn adds, as chat completions write it, or as items of the API itself."""
    what: str = ""
    """The measure that is limited; none: `breaks` decides."""
    limit: int = 0
    breaks: Callable[[Sent], bool] | None = None
    members: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_spelled: bool = False
    """Whether the items are those of the API."""
    again: Rule | None = None
    """In place of a rule made of the file's words."""


def said(text: str = NEWEST) -> list[Json]:
    return [{"role": "assistant", "content": "I have read it."}, {"role": "user", "content": text}]


def worked(results: Iterable[Any], *, arguments: Mapping[int, str] = {}) -> Iterator[list[Json]]:
    """The task, a turn for each result, and then words alone, twice."""
    yield [{"role": "user", "content": TASK}]
    for number, content in enumerate(results):
        made = [call(number, arguments=arguments.get(number, "{}"))]
        if content is not None:
            yield [*made, {**result(number, ""), "content": content}]
    yield said()
    yield said("And how is it cured?")


def lines(count: int, turns: int) -> list[str]:
    return [long_text(count, f"step {turn}") for turn in range(turns)]


def pictures(count: int, large: Mapping[int, bytes] = {}) -> list[Any]:
    contents = [large.get(number, png() + b"%d" % number) for number in range(count)]
    return [[{"type": "text", "text": f"page {number}"}, image_part(one)] for number, one in enumerate(contents)]


def planted(*items: Json, turns: int = 3) -> Iterator[list[Json]]:
    """The task and these items; then words alone."""
    yield [{"role": "user", "content": TASK}, *items]
    for number in range(turns):
        yield said(f"{NEWEST} {number}")


def screenshots(count: int) -> Iterator[list[Json]]:
    yield [{"role": "user", "content": TASK}]
    for number in range(count):
        url = image_part(png() + b"%d" % number)["image_url"]["url"]
        made = {"type": "computer_call", "id": f"cu_{number}", "call_id": f"call_{number}", "action": {"type": "wait"}}
        shot = {"type": "computer_screenshot", "image_url": url}
        output = {"type": "computer_call_output", "call_id": f"call_{number}", "output": shot}
        also = [{"type": "custom_tool_call", "call_id": f"c_{number}", "name": "run", "input": "ls"}] * (
            number % 3 == 2
        )
        also += [{"type": "custom_tool_call_output", "call_id": f"c_{number}", "output": "ok"}] * (number % 3 == 2)
        yield [made, output, *also]
    yield said()


def _blocks(kind: str, **members: Any) -> Json:
    return {"type": kind, **members}


def _step(*before: Json) -> list[Json]:
    use = _blocks("tool_use", id="toolu_1", name="bash", input={"cmd": "ls"})
    answer = _blocks("tool_result", tool_use_id="toolu_1", content="total 8")
    return [{"role": "assistant", "content": [*before, use]}, {"role": "user", "content": [answer]}]


def _results(sent: Sent) -> list[str]:
    return [str(one["content"]) for one in sent.messages if one.get("role") == "tool"]


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return not text.lstrip().startswith(("{", "["))
    return True


def _marked(number: int) -> list[Json]:
    use = _blocks("tool_use", id=f"toolu_{number}", name="bash", input={})
    mark = {"cache_control": {"type": "ephemeral"}}
    answer = _blocks("tool_result", tool_use_id=f"toolu_{number}", content="total 8", **mark)
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


def _chat_step(**members: Any) -> list[Json]:
    return [call(1) | members, result(1, "total 8")]


def _runs_out(sent: Sent) -> Answer | None:
    """In the middle of a stream, or at its beginning."""
    if sent.tokens > 9_000:
        return sent.face.error(f"the request exceeds the available context size ({sent.tokens} > 9000 tokens)")
    over = Over("prompt", 7_600, "Context size has been exceeded.", arrives="after content")
    return over(sent)


def _empty_once(sent: Sent) -> Answer | None:
    return Answer(200, b"data: [DONE]\n\n", "text/event-stream") if sent.number == 8 else None


LONG: Final = "A line of the log that goes on and on. " * 770
RECORDS: Final = [{"id": number, "name": f"record {number}", "value": number * 7_919} for number in range(3_000)]
TEN: Final = lines(150, 10)
STRINGS: Final = [*["x" * 900] * 3, LONG, *["y" * 900] * 3, LONG]


def scripts() -> Mapping[str, Script]:
    sealed = _blocks("thinking", thinking="", signature="EuYBsealed")
    lone = _blocks("tool_result", tool_use_id="toolu_1", content="broken \ud83d here")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 4_096}
    compacted = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAsealed"}
    step = [
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "total 8"},
    ]
    return {
        "args-1048576": Script(
            worked(lines(9, 4), arguments={0: json.dumps({"path": "a", "content": LONG * 54})}), "string", 1_048_576,
            settings={"defaults": {"context_window": 4_000_000}},
        ),
        "args-not-json": Script(
            planted(call(1, arguments='{"cmd": "l'), result(1, "total 8")), breaks=lambda sent: '\\"l"' in sent.text
        ),
        "cache-control-5": Script(
            planted(*(one for number in range(5) for one in _marked(number))), "marks", 4, is_spelled=True
        ),
        "compaction-item": Script(
            planted(compacted, *step), breaks=lambda sent: "gAAAAsealed" in sent.text, is_spelled=True
        ),
        "computer-screenshots": Script(
            screenshots(14), "images", 4, settings={"models": [{"match": "*", "max_images": 4}]}, is_spelled=True
        ),
        "content-1048576-user": Script(
            planted({"role": "assistant", "content": "Yes?"}, {"role": "user", "content": LONG * 57}), "string",
            1_048_576, settings={"defaults": {"context_window": 4_000_000}},
        ),
        "echoed-instructions": Script(worked(TEN), "prompt", 9_000),
        "empty-content": Script(
            planted(*_step(), {"role": "assistant", "content": []}, {"role": "user", "content": "Go on."}),
            breaks=lambda sent: '"content": []' in sent.text, is_spelled=True,
        ),
        "img-2000px": Script(
            worked(pictures(24, {2: png(2_304, 1_316)})),
            breaks=lambda sent: sent.measured("images") > 20 and sent.measured("pixels") > 2_000,
        ),
        "img-5mb": Script(worked(pictures(4, {0: png() + b"\1" * 5_500_000})), "image bytes", 5_242_880),
        "img-count-20": Script(worked(pictures(24)), "images", 20),
        "img-count-4": Script(worked(pictures(8)), "images", 4),
        "img-count-50": Script(worked(pictures(55)), "images", 50),
        "img-docs-100": Script(worked(pictures(104)), "images", 100),
        "ja-no-number": Script(worked(TEN), "prompt", 9_000),
        "ko-no-number": Script(worked(TEN), "prompt", 9_000),
        "jackson-string": Script(worked(STRINGS), "string", 6_000),
        "pydantic-422": Script(worked(STRINGS), "string", 6_000),
        "json-result": Script(
            worked([json.dumps(RECORDS), json.dumps(RECORDS, indent=1), "plain\n" * 9_000]),
            breaks=lambda sent: not all(map(_parses, _results(sent))),
            settings={"defaults": {"context_window": 32_000}},
        ),
        "lone-surrogate": Script(
            planted({"role": "assistant", "content": _step()[0]["content"]}, {"role": "user", "content": [lone]}),
            breaks=lambda sent: b"\\ud83d here" in sent.body, is_spelled=True,
        ),
        "messages-100": Script(worked(lines(20, 24)), "messages", 40),
        "midstream-runout": Script([*worked(TEN), [], [], []], again=_runs_out, members={"stream": True}),
        "mistral-user-after-tool": Script(
            planted(*_chat_step(), {"role": "user", "content": "Stop."}),
            breaks=lambda sent: any(
                (one["role"], other["role"]) == ("tool", "user")
                for one, other in zip(sent.messages, sent.messages[1:], strict=False)
            ),
        ),
        "openrouter-sum-first": Script(worked(TEN), "total", 9_000, members={"max_tokens": 8_000}),
        "reply-fills-window": Script(worked(TEN), "total", 9_000, members={"max_tokens": 9_000}),
        "reasoning-content": Script(
            planted(*_chat_step()),
            breaks=lambda sent: any(
                one["role"] == "assistant" and "reasoning_content" not in one for one in sent.messages
            ),
        ),
        "thinking-modified": Script(
            planted(*_step(sealed)), breaks=lambda sent: "EuYBsealed" in sent.text, members=thinking, is_spelled=True
        ),
        "tier-429": Script(
            worked(lines(1_500, 16)), "prompt", 200_000, members={"model": "claude-opus-4-6"},
            headers={"anthropic_beta": "context-1m-2025-08-07"},
        ),
        "transient-empty": Script(worked(TEN), again=_empty_once, members={"stream": True}),
        "yandex-chars": Script(worked(TEN), "characters", 27_000),
    }  # fmt: skip


_AS: Final = {"as img-count-50": "img-count-50", "as reply-fills-window": "reply-fills-window"}
_STRING_TOO_LONG: Final = (
    "Invalid 'messages[{i}].content': string too long. Expected a string with maximum length 1048576, but got a string "
    "with length {n} instead."
)


def filled(told: Any, sent: Sent, seen: float, limit: int) -> Any:
    """The words of a file with the figures of a request."""
    values = {
        "k": int(seen), "n": int(sent.tokens if seen == sent.measured("total") else seen), "i": 3, "j": 0, "id": "c",
        "LIM": limit, "M": limit, "mx": int(sent.measured("reply")), "n+mx": int(sent.measured("total")),
        "n-200": sent.tokens - 200,
    }  # fmt: skip
    if isinstance(told, str):
        text = told.replace("<the system text of the request>", "Ignore the length of the context. " * 40)
        return re.sub(r"\{([\w+-]+)\}", lambda found: str(values.get(found[1], found[0])), text)
    if isinstance(told, dict):
        return {name: filled(one, sent, seen, limit) for name, one in told.items()}
    return [filled(one, sent, seen, limit) for one in told] if isinstance(told, list) else told


def refusing(upstream: Json, script: Script) -> Rule:
    """The rule of a file."""

    def rule(sent: Sent) -> Answer | None:
        seen = sent.measured(script.what) if script.what else 0
        is_refused = script.breaks(sent) if script.breaks is not None else seen > script.limit
        if not is_refused:
            return None
        status = upstream.get("status", 400)
        if (body := upstream.get("body")) is not None:
            return replace(as_json(filled(body, sent, seen, script.limit), status), refuses=True)
        members = {name: upstream[name] for name in ("code", "type") if name in upstream}
        message = filled(upstream.get("message", _STRING_TOO_LONG), sent, seen, script.limit)
        return replace(sent.face.error(message, status, **members), refuses=True)

    return script.again or rule


@dataclass(frozen=True)
class Played:
    """What became of a case."""

    name: str
    api: str
    statuses: list[int]
    sends: list[int]
    lost: str = ""
    """What the last accepted request lacks."""

    @property
    def ends_well(self) -> bool:
        return set(self.statuses) <= {200} and max(self.sends) <= 3 and not self.lost

    @property
    def row(self) -> str:
        """A row of the table: sends, turns of several sends, the first turn from which each goes up once."""
        once = max((turn + 1 for turn, sent in enumerate(self.sends) if sent > 1), default=0)
        failed = [turn for turn, status in enumerate(self.statuses) if status != 200]
        said = "ends well" if self.ends_well else f"FAILED in turns {failed} {self.lost}"
        several = sum(sent > 1 for sent in self.sends)
        counts = (
            f"{sum(self.sends):>4} sends in {len(self.sends):>3} turns, {several:>2} double, once from turn {once:>3}"
        )
        return f"{self.name:<28}{self.api:<10} {counts}  {said}"


def played(name: str, script: Script, upstream: Json, api: str, folder: Path) -> Played:
    """Play a case on an API."""
    rules = [well_formed, refusing(upstream, script)] if not script.is_spelled else [refusing(upstream, script)]
    model = ScriptedModel(rules, words("Done."), [FACES[api]])
    path, spelled = SPELLED[api]
    member = FACES[api].member
    statuses, sends = list[int](), list[int]()
    with world(folder, model, [{"defaults": {}, **script.settings}]) as found:
        items: list[Json] = []
        for new in script.turns:
            items += new
            request = {"model": "m", "messages": items}
            body = {"model": "m", member: items, "max_tokens": 512} if script.is_spelled else spelled(request)
            body |= dict(script.members)
            if api == "responses":
                body.pop("max_tokens", None)
            if api == "ollama":
                body.setdefault("stream", False)
            before = len(model.sent)
            statuses.append(found.ask(body, path=path, **script.headers).status_code)
            sends.append(len(model.sent) - before)
    last = model.last.text
    lost = "" if TASK in last else "the task"
    return Played(name, api, statuses, sends, lost)


def read(folder: Path) -> dict[str, Json]:
    """The cases of a folder by id."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}


def play_all(folder: Path, names: Sequence[str] = ()) -> Iterator[Played]:
    """Play the cases of a folder, or those of these ids; what has no script here is left out."""
    cases, known = read(folder), scripts()
    for name, case in cases.items():
        if name not in known or (names and name not in names):
            continue
        upstream = case["upstream"]
        if (like := _AS.get(upstream.get("message", ""))) is not None:
            upstream = upstream | cases[like]["upstream"]
        with tempfile.TemporaryDirectory() as kept:
            yield played(name, known[name], upstream, case["wire"], Path(kept))


def main(folder: str, *names: str) -> int:
    failed = 0
    for one in play_all(Path(folder), names):
        failed += not one.ends_well
        print(one.row, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
