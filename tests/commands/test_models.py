import json
import re
from typing import Any

import httpx
import pytest
import respx
from support.respx_upstream import RespxUpstream

from proxy.__main__ import main
from proxy.commands.models import models
from proxy.config import Settings
from proxy.core.models import facts
from proxy.shell.models import Learning

BASE = "https://llm.example.org/v1"
READS_TEXT = [{"match": "m*", "input": "text"}]


@pytest.fixture(autouse=True)
def _upstream(monkeypatch):
    monkeypatch.setattr("proxy.shell.models.profiles.Upstream", RespxUpstream)


@pytest.fixture
def printed(capsys):
    """Runs the command; what it prints, or the document that it prints as JSON."""

    def run(name=None, *, as_json=False, **settings):
        made = Settings(**{"upstream": {"base_url": BASE, "api_key": "sk-secret"}, **settings})
        capsys.readouterr()  # what was learned before is in the log
        assert models(made, name, as_json=as_json) == 0
        output = capsys.readouterr().out
        assert "sk-secret" not in output
        return json.loads(output) if as_json else output

    return run


@respx.mock
def test_a_profile_shows_each_value_and_where_it_came_from(printed):
    respx.get(f"{BASE}/models").respond(json=[{"id": "m-1", "context_length": 32768, "max_completion_tokens": 4096}])
    lines = [re.sub(" +", " ", line) for line in printed("m-1", models=READS_TEXT).splitlines()]
    assert "window_tokens 32768 upstream /v1/models" in lines
    assert "modalities text config models[0]" in lines
    (found,) = printed("m-1", as_json=True, models=READS_TEXT)["upstreams"]
    assert (found["upstream"], found["listed"], found["reason"]) == (BASE, True, None)
    assert found["models"][0]["window_tokens"] == {"value": 32768, "from": "upstream /v1/models"}


@respx.mock
def test_what_was_refused_is_shown_and_who_says_so(tmp_path, printed):
    respx.get(f"{BASE}/models").respond(500)
    learning = Learning(tmp_path, BASE)
    learning.learn("results", {facts.RESULTS_HOLD_TEXT: 1})
    learning.learn("all", {facts.RESULTS_HOLD_TEXT: 1})
    learning.learn("all", {f"{facts.REFUSES}vision": 1})
    learning.learn("tool", {facts.REFUSES_OUR_TOOL: 1})
    for name, shown in (
        ("results", "media in results"),
        ("all", "vision, media in results"),
        ("tool", "read_artifact"),
    ):
        (row,) = (line for line in printed(name, data_dir=tmp_path).splitlines() if line.startswith("refused"))
        assert [cell.strip() for cell in row.split("  ") if cell] == ["refused", shown, "learned from a refusal"]


@respx.mock
def test_the_limits_of_tool_results_are_shown_with_the_share_of_the_window(printed):
    respx.get(f"{BASE}/models").respond(500)
    models = [
        {"match": "small", "context_window": 8_000},
        {"match": "large", "context_window": 200_000, "max_tool_result_chars": 500},
    ]
    tools = {"never": ["Task"], "tools": {"Read": {"max_bytes": 200_000}}}

    def of(name):
        return printed(name, as_json=True, models=models, tool_output=tools)["upstreams"][0]["models"][0][
            "tool_results"
        ]

    small, large = of("small"), of("large")
    # 30 % of the window less 2 000, at three bytes a token
    assert (small["limits"]["max_bytes"], small["limits"]["max_chars"], small["bound_by"]) == (5_400, None, "window")
    assert (large["limits"]["max_bytes"], large["limits"]["max_chars"]) == (51_200, 1_000)
    assert large["tools"]["Read"]["max_bytes"] == 200_000
    assert large["never"] == ["Task"]


@pytest.mark.parametrize(
    ("response", "name", "said"),
    [
        ({"status_code": 500}, "m-1", r"^reason +it answered 500$(.|\n)*^window_tokens +128000 "),
        ({"status_code": 401}, None, "^Neither the configuration nor the upstream names a model"),
        ({"json": [{"id": "\x1b[31mred\r[bold]x[/]"}]}, None, r"^  \ufffd\[31mred\ufffd\[bold\]x\[/\] "),
    ],
)
@respx.mock
def test_what_an_upstream_fails_to_say_is_named_and_a_foreign_name_steers_no_terminal(printed, response, name, said):
    respx.get(f"{BASE}/models").respond(**response)
    out = printed(name)
    assert re.search(said, out, re.MULTILINE)
    assert not set("\x1b\r") & set(out)


@respx.mock
def test_without_a_name_the_models_of_configuration_and_upstream_are_a_table(printed):
    respx.get(f"{BASE}/models").respond(json=[{"id": "m-1", "context_length": 32768}, {"id": "m-2"}])
    out = printed(models=[{"match": "mine", "context_window": 4096}, {"match": "m-*", "max_output_tokens": 7}])
    *table, advice = out.splitlines()
    assert [line.split()[0] for line in table[-4:]] == ["model", "mine", "m-1", "m-2"]
    assert table[-1].rstrip().endswith("guessed: default")
    assert "guessed" not in table[-2]
    assert "--context-window N" in advice
    assert "m-*" not in out


@respx.mock
def test_each_of_several_upstreams_shows_the_models_whose_requests_go_to_it(printed):
    other = "https://other.example.org/v1"
    respx.get(f"{BASE}/models").respond(json=[{"id": name, "context_length": 32768} for name in ("m-1", "q-1")])
    respx.get(f"{other}/models").respond(json=[{"id": name, "context_length": 4096} for name in ("m-1", "q-1")])
    routed = [{"match": "q-*", "base_url": other}, {"match": "m-1", "wire": "messages", "base_url": other}]

    def found(name=None):
        return [
            (one["requests"], [(each["model"], each["window_tokens"]["value"]) for each in one["models"]])
            for one in printed(name, as_json=True, upstreams=routed)["upstreams"]
        ]

    assert found() == [
        ("Requests for q-*", [("q-1", 4096)]),
        ("Requests for m-1 at /v1/messages", [("m-1", 4096)]),
        ("All other requests", [("m-1", 32768)]),
    ]
    assert found("q-1") == found()[:1]
    assert found("m-1") == found()[1:]


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
def test_a_model_has_the_same_profile_in_the_list_and_by_name_whether_ollama_has_loaded_it_or_not(tmp_path, printed):
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
    table = {one["model"]: one for one in printed(as_json=True, **settings)["upstreams"][0]["models"]}
    assert [*table] == ["learned:latest", *(name for name in shown if name != "learned:latest")]
    for name, one in table.items():
        assert printed(name, as_json=True, **settings)["upstreams"][0]["models"] == [one]
    windows = {name: (one["window_tokens"]["value"], one["window_tokens"]["from"]) for name, one in table.items()}
    assert windows.pop("qwen3:8b")[1].startswith("guessed: "), "Ollama says it once it has loaded it"
    assert {name: window for name, (window, source) in windows.items() if "guessed" not in source} == {
        "loaded:latest": 8_192,
        "stated:latest": 16_384,
        "gpt-oss:120b-cloud": 131_072,
        "learned:latest": 2_048,
        "configured:latest": 12_000,
    }
    assert table["stated:latest"]["modalities"]["value"] == ["text", "vision"]
    said = [words.split(maxsplit=1) for words in table["configured:latest"]["windows"]["value"]]
    assert [(int(tokens), source) for tokens, source in said] == [
        (12_000, "config models[0]"),
        (16_384, table["stated:latest"]["window_tokens"]["from"]),
    ], "the settings come first, and what the server says is shown"
