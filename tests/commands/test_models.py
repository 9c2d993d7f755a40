import io
import json
from typing import Any

import httpx
import pytest
import respx
from rich.console import Console
from support.respx_upstream import RespxUpstream

from proxy.__main__ import main
from proxy.commands.models import print_models
from proxy.config import Settings
from proxy.core.models import facts
from proxy.shell.models import Learning

BASE = "https://llm.example.org/v1"


@pytest.fixture(autouse=True)
def _upstream(monkeypatch):
    monkeypatch.setattr("proxy.shell.models.profiles.Upstream", RespxUpstream)


def printed(name=None, *, as_json=False, **settings):
    out = io.StringIO()
    made = Settings(**{"upstream": {"base_url": BASE, "api_key": "sk-secret"}, **settings})
    print_models(made, name, Console(file=out, width=200), as_json=as_json)
    assert "sk-secret" not in out.getvalue()
    return out.getvalue()


@respx.mock
def test_a_profile_shows_each_value_and_where_it_came_from():
    respx.get(f"{BASE}/models").respond(json=[{"id": "m-1", "context_length": 32768, "max_completion_tokens": 4096}])
    lines = {
        line.split("  ")[0].strip(): line
        for line in printed("m-1", models=[{"match": "m*", "input": "text"}]).splitlines()
    }
    assert "32,768" in lines["context window"]
    assert "upstream /v1/models" in lines["context window"]
    assert "config models[0]" in lines["reads"]


@respx.mock
def test_what_was_refused_is_shown_and_who_says_so(tmp_path):
    respx.get(f"{BASE}/models").respond(500)
    learning = Learning(tmp_path, BASE)
    learning.learn("results", {facts.RESULTS_HOLD_TEXT: 1})
    learning.learn("all", {facts.RESULTS_HOLD_TEXT: 1})
    learning.learn("all", {f"{facts.REFUSES}vision": 1})
    learning.learn("tool", {facts.REFUSES_OUR_TOOL: 1})
    for name, shown in (
        ("results", "media in the results of tools"),
        ("all", "vision, media in the results of tools"),
        ("tool", "read_artifact"),
    ):
        (row,) = (line for line in printed(name, data_dir=tmp_path).splitlines() if "has refused" in line)
        assert [cell.strip() for cell in row.split("  ") if cell] == ["has refused", shown, "learned from a refusal"]
        assert json.loads(printed(name, as_json=True, data_dir=tmp_path))["results_hold_text"] is (name != "tool")


@respx.mock
def test_the_limits_of_tool_results_are_shown_with_the_share_of_the_window():
    respx.get(f"{BASE}/models").respond(500)
    models = [
        {"match": "small", "context_window": 8_000},
        {"match": "large", "context_window": 200_000, "max_tool_result_chars": 500},
    ]
    tools = {"never": ["Task"], "tools": {"Read": {"max_bytes": 200_000}}}

    def rows(name):
        lines = printed(name, models=models, tool_output=tools).splitlines()
        return {line.split("  ")[0].strip(): line.split("  ", 1)[1].strip() for line in lines if "  " in line}

    # 30 % of the window less 2 000, at three bytes a token
    assert rows("small")["a tool result at most"].startswith("2,000 lines, 5,400 bytes ")
    assert rows("large")["a tool result at most"].startswith("2,000 lines, 51,200 bytes, 1,000 characters ")
    assert rows("large")["one of Read"].startswith("2,000 lines, 200,000 bytes, 1,000 characters ")
    assert rows("large")["never cut"].startswith("Task")
    found = json.loads(printed("small", as_json=True, models=models, tool_output=tools))["tool_results"]
    assert (found["max_bytes"], found["bound_by"]) == (5_400, "window")
    assert rows("small")["a tool result at most"].endswith("share of the window, settings")
    assert rows("large")["a tool result at most"].endswith("max_tool_result_chars")
    assert found["tools"]["Read"]["max_bytes"] == 200_000


@respx.mock
def test_an_upstream_that_does_not_answer_is_named_and_the_rest_is_shown():
    respx.get(f"{BASE}/models").respond(500)
    out = printed("m-1")
    assert "128,000" in out
    assert f"{BASE} did not list its models: it answered 500" in out


@respx.mock
def test_without_a_name_the_models_of_configuration_and_upstream_are_a_table():
    respx.get(f"{BASE}/models").respond(json=[{"id": "m-1", "context_length": 32768}, {"id": "m-2"}])
    out = printed(models=[{"match": "mine", "context_window": 4096}, {"match": "m-*", "max_output_tokens": 7}])
    *table, advice = out.splitlines()
    assert [line.split()[0] for line in table] == ["model", "mine", "m-1", "m-2"]
    assert table[-1].rstrip().endswith("guessed: default")
    assert "guessed" not in table[-2]
    assert "--context-window N" in advice
    assert "m-*" not in out


@respx.mock
def test_an_empty_result_is_reported():
    respx.get(f"{BASE}/models").respond(401)
    assert "Neither the configuration nor the upstream names a model" in printed()


@respx.mock
def test_json_holds_the_same():
    respx.get(f"{BASE}/models").respond(json=[{"id": "m-1", "context_length": 32768, "input_modalities": ["text"]}])
    one, many = json.loads(printed("m-1", as_json=True)), json.loads(printed(as_json=True))
    assert (one["window_tokens"], one["window_is_guessed"], one["modalities"]) == (32768, False, ["text"])
    assert one["sources"] == {"window_tokens": "upstream /v1/models", "modalities": "upstream /v1/models"}
    assert one["upstream"] == {"base_url": BASE, "listed": True, "reason": None}
    assert [profile["model"] for profile in many["models"]] == ["m-1"]


@respx.mock
def test_a_foreign_name_does_not_steer_the_terminal():
    respx.get(f"{BASE}/models").respond(json=[{"id": "\x1b[31mred\r[bold]x[/]"}])
    out = printed()
    assert "\x1b" not in out
    assert "\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}[bold]x[/]" in out


@respx.mock
def test_each_of_several_upstreams_shows_the_models_whose_requests_go_to_it():
    other = "https://other.example.org/v1"
    respx.get(f"{BASE}/models").respond(json=[{"id": name, "context_length": 32768} for name in ("m-1", "q-1")])
    respx.get(f"{other}/models").respond(json=[{"id": name, "context_length": 4096} for name in ("m-1", "q-1")])
    routed = [{"match": "q-*", "base_url": other}, {"match": "m-1", "wire": "messages", "base_url": other}]
    reported = printed(upstreams=routed)
    headings = ["Requests for q-*: ", "Requests for m-1 at /v1/messages: ", "All other requests: "]
    starts = [reported.index(heading) for heading in headings]
    parts = [reported[start:end].split("\n", 1)[1] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    assert [("q-1" in part, "m-1" in part) for part in parts] == [(True, False), (False, True), (False, True)]
    assert ["4,096" in part for part in parts] == [True, True, False]


@respx.mock
def test_a_model_is_shown_with_what_the_upstream_that_serves_it_states():
    other = "https://other.example.org/v1"
    respx.get(f"{BASE}/models").respond(json=[{"id": "m", "context_length": 32768}])
    respx.get(f"{other}/models").respond(json=[{"id": "m", "context_length": 4096}])
    one = json.loads(printed("m", as_json=True, upstreams=[{"match": "m", "base_url": other}]))
    assert (one["window_tokens"], one["upstream"]["base_url"]) == (4096, other)
    by_wire = json.loads(printed("m", as_json=True, upstreams=[{"match": "m", "wire": "messages", "base_url": other}]))
    assert [found["window_tokens"] for found in by_wire["upstreams"]] == [4096, 32768]


def lessons(folder, *models):
    learning = Learning(folder, BASE)
    for name in models:
        learning.learn(name, {facts.REFUSES_OUR_TOOL: 1})
    return ["--data-dir", str(folder), "--upstream", BASE]


def test_forgetting_a_model_says_what_went_and_keeps_the_others(tmp_path, capsys):
    where = lessons(tmp_path, "m-1", "m-2")
    assert main(["models", "m-1", "--forget", *where]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Forgot what {BASE} taught about m-1."
    assert Learning(tmp_path, BASE).models == ("m-2",)
    assert main(["models", "m-1", "--forget", *where]) == 0
    assert "Nothing was learned about m-1 in " in capsys.readouterr().out


def test_all_is_forgotten_only_when_all_is_said(tmp_path, capsys):
    where = lessons(tmp_path, "m-1", "m-2")
    for wrong in (["--forget"], ["--all"], ["m-1", "--forget", "--all"]):
        assert main(["models", *wrong, *where]) == 2
        assert "--forget takes the name of a model, or --all" in capsys.readouterr().err
    assert main(["models", "--forget", "--all", *where]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[-2:]] == ["m-1.", "m-2."]
    assert Learning(tmp_path, BASE).models == ()


def test_one_model_is_not_forgotten_where_replicas_would_teach_it_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CONTEXT_PROXY_STATE__URL", "redis://127.0.0.1:9/0")
    assert main(["models", "m-1", "--forget", *lessons(tmp_path, "m-1")]) == 2
    assert "--forget --all" in capsys.readouterr().err
    assert Learning(tmp_path, BASE).models == ("m-1",)


@respx.mock
def test_a_model_has_the_same_profile_in_the_table_and_by_its_name_whether_ollama_has_loaded_it_or_not(tmp_path):
    own = "http://127.0.0.1:11434"
    shown = {
        "loaded:latest": {"capabilities": ["completion"]},
        "stated:latest": {"parameters": "num_ctx   16384", "capabilities": ["completion", "vision"]},
        "qwen3:8b": {"model_info": {"qwen3.context_length": 40_960}, "capabilities": ["completion"]},
        "gpt-oss:120b-cloud": {"remote_host": "https://ollama.com", "model_info": {"x.context_length": 131_072}},
        "learned:latest": {},
        "configured:latest": {"parameters": "num_ctx   16384"},
    }
    respx.get(f"{own}/v1/models").respond(json={"data": [{"id": name} for name in shown]})
    respx.get(f"{own}/api/version").respond(json={"version": "0.15.5"})
    respx.get(f"{own}/api/ps").respond(json={"models": [{"name": "loaded:latest", "context_length": 8_192}]})
    respx.post(f"{own}/api/show").mock(
        side_effect=lambda request: httpx.Response(200, json=shown[json.loads(request.content)["model"]])
    )
    respx.route().respond(404)
    Learning(tmp_path, f"{own}/v1").note_cut("learned:latest", 2_048, None)
    settings: dict[str, Any] = {
        "upstream": {"base_url": f"{own}/v1"},
        "data_dir": tmp_path,
        "models": [{"match": "configured*", "context_window": 12_000}],
    }
    table = {one["model"]: one for one in json.loads(printed(as_json=True, **settings))["models"]}
    assert [*table] == ["learned:latest", *(name for name in shown if name != "learned:latest")]
    for name, one in table.items():
        alone = json.loads(printed(name, as_json=True, **settings))
        assert {member: alone[member] for member in one} == one
    windows = {name: (one["window_tokens"], one["window_is_guessed"]) for name, one in table.items()}
    assert windows.pop("qwen3:8b")[1], "what Ollama would give it is known once it has loaded it"
    assert windows == {
        "loaded:latest": (8_192, False),
        "stated:latest": (16_384, False),
        "gpt-oss:120b-cloud": (131_072, False),
        "learned:latest": (2_048, False),
        "configured:latest": (12_000, False),
    }
    assert table["stated:latest"]["modalities"] == ["text", "vision"]
