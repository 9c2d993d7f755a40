import json

import pytest

from proxy.commands.agents import AGENTS, SettingsFile, agent_in, agent_named
from proxy.commands.wiring import NoUpstream, changed_settings, env, upstream_of, wiring_of
from proxy.config import Settings

ROOT = "http://127.0.0.1:8787"
CLAUDE = agent_named("claude")


def settings(folder, **stated):
    return Settings(data_dir=folder, **stated)


def lines(capsys, name, folder, form="posix", off=False):
    assert env(name, settings(folder), form, off=off) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("form", "on", "off"),
    [
        ("posix", f"export ANTHROPIC_BASE_URL={ROOT}", "unset ANTHROPIC_BASE_URL"),
        ("fish", f"set -gx ANTHROPIC_BASE_URL '{ROOT}'", "set -e ANTHROPIC_BASE_URL"),
        (
            "powershell",
            f"$env:ANTHROPIC_BASE_URL = '{ROOT}'",
            "Remove-Item Env:ANTHROPIC_BASE_URL -ErrorAction SilentlyContinue",
        ),
    ],
)
def test_each_shell_gets_its_own_lines_and_those_that_undo_them(capsys, tmp_path, form, on, off):
    begun = lines(capsys, "claude", tmp_path, form).splitlines()
    undone = lines(capsys, "claude", tmp_path, form, off=True).splitlines()
    assert (begun[0], undone[0]) == (on, off)
    assert len(begun) == len(undone) == 2  # the other is ENABLE_TOOL_SEARCH


@pytest.mark.parametrize("agent", [one.name for one in AGENTS if one.command])
@pytest.mark.parametrize(
    "upstream", ["https://api.anthropic.com/v1", "http://127.0.0.1:9/v1", "http://127.0.0.1:11434"]
)
def test_whatever_is_set_for_an_upstream_is_undone_for_it(capsys, tmp_path, agent, upstream):
    stated = settings(tmp_path, upstream={"base_url": upstream})
    named = []
    for off in (False, True):
        assert env(agent, stated, "json", off=off) == 0
        named.append(set(json.loads(capsys.readouterr().out)["variables"]))
    assert named[0] <= named[1]


def test_as_json_a_program_gets_flags_too(capsys, tmp_path):
    found = json.loads(lines(capsys, "codex", tmp_path, "json"))
    assert found["variables"]["OPENAI_BASE_URL"] == f"{ROOT}/v1"
    assert found["flags"] == ["-c", f'openai_base_url="{ROOT}/v1"']
    undone = json.loads(lines(capsys, "codex", tmp_path, "json", off=True))
    assert undone["variables"] == dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"))


def test_what_a_variable_cannot_say_is_a_comment(capsys, tmp_path):
    assert "# codex needs flags, too: codex -c 'openai_base_url=" in lines(capsys, "codex", tmp_path)
    assert "# cline needs a setting, which `context-proxy run cline` makes" in lines(capsys, "cline", tmp_path)


def test_an_unknown_agent_is_said_to_be_unknown(capsys, tmp_path):
    assert env("nobody", settings(tmp_path), "posix", off=False) == 2
    assert capsys.readouterr().err.startswith("nobody is not known: docs/agents.md lists what is")


@pytest.mark.parametrize(
    ("name", "environment", "base_url"),
    [
        ("claude", {}, "https://api.anthropic.com/v1"),
        ("claude", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, "http://127.0.0.1:9/v1"),
        ("claude", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/gateway"}, "http://127.0.0.1:9/gateway/v1"),
        ("claude", {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "https://api.anthropic.com/v1"),  # not one of its own
        ("codex", {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "https://api.openai.com/v1"),
        ("copilot", {"COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:9/v1"}, "http://127.0.0.1:9/v1"),
        ("aider", {"OLLAMA_HOST": "127.0.0.1:9"}, "http://127.0.0.1:9/v1"),
        ("", {"OLLAMA_HOST": "0.0.0.0"}, "http://127.0.0.1:11434/v1"),
        ("", {"ANTHROPIC_BASE_URL": " http://127.0.0.1:9/ "}, "http://127.0.0.1:9/v1"),
        ("", {"OPENAI_BASE_URL": " http://127.0.0.1:9/v1/ "}, "http://127.0.0.1:9/v1"),
    ],
)
def test_without_a_flag_the_upstream_is_where_the_agent_would_go_itself(tmp_path, name, environment, base_url):
    assert upstream_of(agent_named(name), settings(tmp_path), environment).base_url == base_url


def test_a_stated_upstream_beats_all_of_this(tmp_path):
    stated = settings(tmp_path, upstream={"base_url": "http://127.0.0.1:9/v1"})
    assert upstream_of(CLAUDE, stated, {"ANTHROPIC_BASE_URL": "http://elsewhere"}).base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("environment", [{}, {"OPENAI_BASE_URL": "nowhere"}])
def test_where_nothing_says_so_a_sentence_does(tmp_path, environment):
    with pytest.raises(NoUpstream, match="--upstream"):
        upstream_of(None, settings(tmp_path), environment)


@pytest.mark.parametrize(
    ("base_url", "environment", "variables"),
    [
        ("http://127.0.0.1:9/v1", {}, {"OPENAI_BASE_URL": f"{ROOT}/v1", "OPENAI_API_BASE": f"{ROOT}/v1"}),
        ("https://api.anthropic.com/v1", {}, {"ANTHROPIC_BASE_URL": ROOT}),
        (None, {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, {"ANTHROPIC_BASE_URL": ROOT}),
        (
            "http://127.0.0.1:11434",
            {},
            {"OPENAI_BASE_URL": f"{ROOT}/v1", "OPENAI_API_BASE": f"{ROOT}/v1", "OLLAMA_HOST": ROOT},
        ),
    ],
)
def test_only_the_variables_of_what_the_upstream_speaks_are_set(tmp_path, base_url, environment, variables):
    stated = settings(tmp_path) if base_url is None else settings(tmp_path, upstream={"base_url": base_url})
    assert wiring_of(None, upstream_of(None, stated, environment), ROOT, {}).variables == variables


def test_the_search_for_tools_is_for_its_maker_alone_and_never_against_the_user(tmp_path):
    own = upstream_of(CLAUDE, settings(tmp_path), {})
    other = upstream_of(CLAUDE, settings(tmp_path), {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
    assert wiring_of(CLAUDE, own, ROOT, {}).variables["ENABLE_TOOL_SEARCH"] == "true"
    assert "ENABLE_TOOL_SEARCH" not in wiring_of(CLAUDE, own, ROOT, {"ENABLE_TOOL_SEARCH": "auto"}).variables
    assert "ENABLE_TOOL_SEARCH" not in wiring_of(CLAUDE, other, ROOT, {}).variables


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ('base_url = "http://host:1/v1"', f'base_url = "{ROOT}/v1"'),
        ("apiBase: http://host:1/v1/\n", f"apiBase: {ROOT}/v1\n"),
        ('{"host":"http://host:1"}', f'{{"host":"{ROOT}"}}'),
        ("url: http://host:11/v1", None),
        ("url: http://host:1/v1beta", None),
    ],
)
def test_only_the_address_of_the_upstream_is_changed_in_a_copy(tmp_path, written, changed):
    (tmp_path / "settings").write_text(written)
    file = SettingsFile(paths=("$ELSEWHERE/settings", str(tmp_path / "settings")))
    found = changed_settings(file, "http://host:1/v1", ROOT, {})
    assert (found and found[1]) == changed


def test_an_agent_is_recognised_by_its_command_wherever_it_is_and_however_it_is_run():
    def name(*words):
        found, _ = agent_in(words)
        return "" if found is None else found.name

    assert name("qwen") == name("qwen-code") == name("/opt/bin/qwen", "--yolo") == "qwen-code"
    assert name("npx", "-y", "@anthropic-ai/claude-code@2.1.330", "-p") == "claude"
    assert name("uvx", "aider-chat") == "aider"
    assert name("npx", "other", "claude") == name("python", "claude") == ""


def test_no_two_agents_share_a_name_or_a_command():
    names = [one.name for one in AGENTS]
    commands = [one.command for one in AGENTS if one.command]
    assert len(set(names)) == len(names)
    assert len(set(commands)) == len(commands)


def test_an_agent_that_was_tried_has_all_its_figures():
    for agent in AGENTS:
        figures = (agent.bytes_direct, agent.bytes_through, agent.prompt_tokens, agent.least_window)
        assert all(figures) if agent.command and agent.version else not any(figures), agent.name
