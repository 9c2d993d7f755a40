"""`context-proxy explain` on a terminal: readable, harmless, and it leaves no trace."""

import asyncio
import io
import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import exchange, system, user
from support.upstream import listening, model_server

from proxy.__main__ import main
from proxy.commands.explain import create_explainer
from proxy.commands.models import models
from proxy.commands.screen import plain
from proxy.config import Settings
from proxy.shell.models import ModelResolver, counter_for

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
HOSTILE = "\x1b[31mred\x1b[0m [bold]bold[/bold] \u202eevil\x07"


def conversation(exchanges=150, lines=60):
    messages = [system(), user("find the fault")]
    for index in range(exchanges):
        messages += exchange([f"canary line {index}\n" * lines], first_call=index)
    return {"model": "m", "messages": messages}


@pytest.fixture
def explain(tmp_path, monkeypatch, capsys):
    """Runs the command over a request: status, output, errors; the folder that it may not touch is looked at."""
    folder = tmp_path / "untouched"

    def run(request, *flags, window=32000, by_stdin=False, upstream="http://127.0.0.1:9/v1"):
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        file = tmp_path / "request.json"
        file.write_bytes(body)
        if by_stdin:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
        where = ["--data-dir", str(folder), *([] if window is None else ["--context-window", str(window)])]
        # An upstream that refuses every connection, of which nothing is needed.
        status = main(["explain", *where, "--upstream", upstream, *flags, "-" if by_stdin else str(file)])
        output = capsys.readouterr()
        assert not folder.exists(), "nothing is stored"
        return status, output.out, output.err

    return run


def test_three_hundred_messages_fit_on_a_screen(explain):
    status, output, _ = explain(conversation())
    assert status == 0
    assert len(output.splitlines()) < 50
    assert "old_exchange" in output
    assert "config defaults" in output
    assert "canary" not in output


@pytest.mark.parametrize("flags", [(), ("--diff",)])
def test_what_came_with_the_request_does_not_steer_the_terminal(explain, flags):
    request = conversation(10)
    request["model"] = HOSTILE
    for message in request["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["name"] = HOSTILE
    request["messages"][3]["content"] = f"{HOSTILE}\n" * 3_000
    request["messages"].append({"role": HOSTILE, "content": "x"})
    status, output, _ = explain(request, *flags, window=200_000)
    assert status == 0
    assert not set("\x1b\u202e\x07") & set(output)
    assert "[bold]bold[/bold]" in output, "markup is text"


def test_json_output_has_the_same_content(explain):
    status, output, _ = explain(conversation(), "--json", "--model", "other")
    found = json.loads(output)
    assert status == 0
    assert (found["model"], found["fits"], found["changed"], found["problem"]) == ("other", True, True, None)
    assert found["profile"]["window_tokens"] == {"value": 32_000, "from": "config defaults"}
    assert len(found["messages"]) == 302
    before = sum(block["tokens_before"] for block in found["messages"]) + found["besides_messages_tokens"]
    after = sum(block["tokens_after"] for block in found["messages"]) + found["besides_messages_tokens"]
    assert found["size"]["tokens"]["before"] == before
    assert 100 < found["size"]["tokens"]["after"] - after < 300, "the proxy's own tool, which goes with the first cut"
    assert after <= found["room"]["tokens"] < before
    assert {artifact["id"] for artifact in found["artifacts"]} >= {
        name for block in found["messages"] for name in block["artifacts"]
    }


def test_standard_input_will_do(explain):
    assert explain(conversation(), by_stdin=True) == explain(conversation())


def test_a_change_beside_the_messages_is_named_as_in_the_log(explain):
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    status, output, _ = explain(conversation(2, 2_500) | {"tools": [tool]})
    assert status == 0
    assert re.search(r"^  retrieval_tool +1$", output, re.MULTILINE)
    assert "forwarded unchanged" not in output


def test_what_cannot_be_made_to_fit_has_a_status_and_a_reason(explain):
    request = {"model": "gpt-4o", "messages": [system("word " * 50_000), user()], "max_tokens": 100}
    status, output, _ = explain(request)
    assert status == 1
    assert "It would be refused" in output
    assert "messages[0] (system" in " ".join(output.split())
    assert json.loads(explain(request, "--json")[1])["fits"] is False


def test_what_does_not_fit_by_an_estimate_is_sent_and_said_to_be_too_large(explain):
    request = {"model": "m", "messages": [system("word " * 50_000), user()], "max_tokens": 100}
    status, output, _ = explain(request)
    assert status == 0
    assert "more than the prompt budget, by an estimate: the upstream decides" in output
    status, output, _ = explain(conversation(2))
    assert (status, output.splitlines()[-1]) == (0, "It would be forwarded unchanged.")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{", "must be a JSON object"),
        (b"[1]", "must be a JSON object"),
        (b"{}", "has no `messages`"),
        (b'{"messages": 1}', "must be a list"),
        (b"\xff\xfe", "must be a JSON object"),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--model", "m")])
def test_bad_input_is_one_line_and_a_status(explain, body, complaint, flags):
    status, output, errors = explain(body, *flags)
    assert (status, output) == (2, "")
    assert complaint in errors
    assert len(errors.splitlines()) == 1


def test_a_file_that_is_not_there_or_too_large_is_one_line_and_a_status(explain, tmp_path, capsys, monkeypatch):
    assert main(["explain", str(tmp_path / "nothing.json")]) == 2
    assert "No such file" in capsys.readouterr().err
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__MAX_BODY_BYTES", "2000")
    status, _, errors = explain(conversation())
    assert status == 2
    assert "more than 2,000 bytes" in errors


def test_every_limit_of_the_room_and_a_mode_that_changes_nothing_are_shown(explain, monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_DEFAULTS__MAX_REQUEST_CHARS", "900000")
    monkeypatch.setenv("CONTEXT_PROXY_MODE", "observe")
    output = explain({**conversation(25), "max_tokens": 31_000})[1]
    for line in (r"mode +observe", "  asked  31000", "  chars   900000"):
        assert re.search(f"^{line}$", output, re.MULTILINE)


def test_the_upstream_is_queried_for_the_window_as_a_proxy_does(explain):
    with listening(model_server(9_000, "vllm")) as url:
        found = json.loads(
            explain(conversation(2), "--json", "--model", "embedded-model", window=None, upstream=url)[1]
        )
    assert found["profile"]["window_tokens"] == {"value": 9_000, "from": "upstream /v1/models"}
    assert found["upstream"] == {"base_url": url, "listed": True, "reason": None}


def test_an_upstream_without_a_list_is_mentioned(explain):
    assert re.search(r"^  reason +cannot be reached", explain(conversation(2))[1], re.MULTILINE)
    assert json.loads(explain(conversation(2), "--json")[1])["upstream"]["listed"] is False


def test_what_changed_is_a_difference_with_the_reasons(explain):
    request = conversation(3)
    request["messages"][3]["content"] = "".join(f"line {number}\n" for number in range(4_000))
    status, output, _ = explain(request, "--diff", window=200_000)
    assert status == 0
    titles = [line for line in output.splitlines() if line.startswith("message")]
    assert titles[0] == "messages 0-2: unchanged, 27 tokens"
    assert titles[1].startswith("message 3: tool, ")
    assert titles[1].endswith(", truncate_tool_output")
    assert re.search(r"^ line \d+$\n^-line \d+$", output, re.MULTILINE)
    assert re.search(r"^... 1,\d\d\d lines$", output, re.MULTILINE)
    assert "+[context-proxy: " in output
    assert len(output.splitlines()) < 60


def test_what_is_left_out_and_what_is_said_of_it_is_seen(explain):
    _, output, _ = explain(conversation(), "--diff")
    assert re.search(r"^messages \d+-\d+: left out \(old_exchange\), [\d,]+ tokens$", output, re.MULTILINE)
    assert len(output.splitlines()) < 150
    assert "omission_note" in output
    assert "It would be refused" not in output


def test_media_that_go_behind_their_batch_are_shown_as_put_in(explain):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    request = {**conversation(1, 1), "model": "gpt-4o"}  # which can see, and looks in the messages of users only
    request["messages"][3]["content"] = [{"type": "text", "text": "seen"}, picture]
    request["messages"].append(user("and now?"))
    _, output, _ = explain(request, "--diff", window=200_000)
    assert "put in: user" in output
    assert "route_media" in output
    assert output.index("message 3: tool") < output.index("put in: user") < output.index("messages 4: unchanged")


def test_either_json_or_a_difference(explain, capsys):
    with pytest.raises(SystemExit):
        explain(conversation(1), "--diff", "--json")
    assert "not allowed with" in capsys.readouterr().err


@given(st.text(st.characters(categories=None)))
def test_foreign_text_cannot_steer_a_terminal_and_what_can_be_printed_stays(text):
    shown = plain(text)
    assert all(sign.isprintable() or sign == "\N{REPLACEMENT CHARACTER}" for sign in shown)
    assert [sign for sign in text if sign.isprintable()] == [
        sign for sign, was in zip(shown, text, strict=True) if was.isprintable()
    ]


@pytest.mark.parametrize(
    ("model", "options", "learned_as"),
    [
        ("qwen3:8b", {"num_ctx": 8_192}, "qwen3:8b[window=8192]"),
        ("qwen3:latest", {}, "qwen3:latest"),
        ("claude-sonnet-4-5[1m]", {}, "claude-sonnet-4-5[1m]"),
        ("openai/gpt-4o-2024-08-06:free", {}, "openai/gpt-4o-2024-08-06:free"),
    ],
)
@pytest.mark.parametrize("certain", [True, False])
def test_the_ratio_shown_is_the_one_that_the_plan_used(model, options, learned_as, certain, tmp_path, capsys):
    settings = Settings(
        upstream={"base_url": "http://127.0.0.1:9/v1"},
        data_dir=tmp_path,
        defaults={"context_window": 100_000 if certain else None},
    )
    resolver = ModelResolver(settings)
    learning, profile = resolver.learning, resolver.profile(learned_as)
    counter = counter_for(profile.tokenizer, profile.model)
    for _ in range(3):
        learning.note_usage(learned_as, counter.name, 10_000, 12_000, "r")
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "x"}], "options": options}).encode()
    explanation = asyncio.run(create_explainer(settings).explain(body))
    used = explanation.planned.inputs.budget.ratio
    assert explanation.described["token_ratio"] == {"value": used, "from": "learned from usage"}
    assert used == 1.2
    assert models(settings, learned_as, as_json=False) == 0
    assert re.search(r"^token_ratio +1.2  learned from usage$", capsys.readouterr().out, re.MULTILINE)
