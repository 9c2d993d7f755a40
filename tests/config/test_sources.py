import pytest
from support.settings import mistakes

from proxy.config import load
from proxy.core.models import Modality


def test_lists_and_objects_are_written_as_json_in_variables(config, monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_MODELS", '[{"match": "variable*", "input": ["text", "vision"]}]')
    monkeypatch.setenv("CONTEXT_PROXY_TOOL_OUTPUT__NEVER", '["Read"]')
    monkeypatch.setenv("CONTEXT_PROXY_TOOL_OUTPUT__TOOLS", '{"Bash": {"max_lines": 7}}')
    monkeypatch.setenv("CONTEXT_PROXY_TOOL_OUTPUT__TOOLS__Read__MAX_BYTES", "1000")
    monkeypatch.setenv("CONTEXT_PROXY_SERVER", '{"port": 9}')
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__HOST", "h")
    settings = load(config("models: [{match: yaml}]\nserver: {workers: 2}"))
    assert [model.match for model in settings.models] == ["variable*"]
    assert settings.models[0].input == {Modality.TEXT, Modality.VISION}
    assert settings.tool_output.never == {"Read"}
    assert settings.tool_output.tools["Bash"].max_lines == 7
    assert settings.tool_output.tools["Read"].max_bytes == 1000
    assert (settings.server.port, settings.server.host, settings.server.workers) == (9, "h", 2)


def test_upper_and_lower_case_of_variables_are_alike_and_empty_ones_are_not_set(monkeypatch):
    monkeypatch.setenv("context_proxy_server__port", "7")
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__HOST", "")
    monkeypatch.setenv("UPSTREAM", "")
    settings = load()
    assert (settings.server.port, settings.server.host) == (7, "127.0.0.1")
    assert settings.upstream.base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        ("upsteam: {}", "tracing, upstream, upstreams; did you mean upstream?"),
        ("tool_output: {max_bytes: 50KB}", "must be a whole number without a unit, such as 51200, found '50KB'"),
        ("models: {gpt-4: {}}", "models: must be a list, such as `- {match: NAME, …}` instead of `NAME: {…}`"),
        ("server:\n\tport: 1", "line 2: has a tab where YAML takes spaces"),
        ("prot: 1", "prot: unknown setting; valid here are artifacts, budget, "),
        ("server: {prot: 1}", "server.prot: unknown setting; valid here are admin_key, "),
        ("models: [{match: x}, {match: y, windo: 1}]", "models[1].windo: unknown setting; valid here are context_"),
        ("tool_output: {tools: {Read: {lines: 1}}}", "tool_output.tools.Read.lines: unknown setting; valid here are d"),
        ("tool_output: {tools: {max_lines: {x: 1}}}", "tool_output.tools.max_lines.x: unknown setting"),
        ("1: 2", "1: unknown setting"),
        ("server: 5", "server: must hold keys and values, found 5"),
        ("server: [1]", "server: must hold keys and values"),
        ("models: 5", "models: must be a list, found 5"),
        ("models: {match: x}", "models: must be a list"),
        ("models: [5]", "models[0]: must hold keys and values, found 5"),
        ("models: [{}]", "models[0].match: must be set"),
        ("models: [{match: ''}]", "models[0].match: must not be empty, found ''"),
        ("server: {admin_key: 0123456789abcde}", "server.admin_key: must have at least 16 characters"),
        ("server: {admin_key: '0123456789abcd    '}", "server.admin_key: must have at least 16 characters"),
        ("server: {secret: canary}", "server.secret: must be 64 hexadecimal digits, as `openssl rand"),
        ("upstream: {api_key: 'sk one'}", "upstream.api_key: must be visible ASCII characters without spaces"),
        ("upstream: {api_key: os.environ/OPENAI_API_KEY}", "upstream.api_key: must be the key itself"),
        ("upstream: {api_key: $OPENAI_API_KEY}", "upstream.api_key: must be the key itself"),
        ("upstream: {api_key: '${env:KEY}'}", "upstream.api_key: must be the key itself"),
        ("upstream: {api_key: ''}", "upstream.api_key: must be visible ASCII characters without spaces"),
        ("upstream: {api_key: schlüssel}", "upstream.api_key: must be visible ASCII characters without spaces"),
        ("server: {host: ''}", "server.host: must not be empty"),
        ("server: {host_names: ['https://proxy.example']}", "server.host_names[0]: must be a name such as"),
        ("server: {host_names: ['proxy.example:8443']}", "server.host_names[0]: must be a name such as proxy.example"),
        ("server: {host_names: proxy.example}", "server.host_names: must be a list, found 'proxy.example'"),
        ("data_dir: ''", "data_dir: must be a path; `.` is the current folder"),
        ("artifacts: {folder: ''}", "artifacts.folder: must be a path"),
        ("tool_output: {tools: [1]}", "tool_output.tools: must hold keys and values"),
        ("tool_output: {never: Read}", "tool_output.never: must be a list, found 'Read'"),
        ("server: {port: 99999}", "server.port: must be less than or equal to 65535, found 99999"),
        ("server: {port: many}", "server.port: must be a whole number, found 'many'"),
        ("server: {port: 80.5}", "server.port: must be a whole number, found 80.5"),
        ("server: {host: 127}", "server.host: must be text, found 127"),
        ("server: {workers: 0}", "server.workers: must be greater than or equal to 1, found 0"),
        ("defaults: {context_window: 0}", "must be greater than or equal to 512, or left out, found 0"),
        ("models: [{match: m, context_window: 10000000000}]", "must be less than or equal to 100000000, or left out"),
        ("models: [{match: m, max_images: 0}]", "models[0].max_images: must be greater than or equal to 1"),
        ("tool_output: {tools: {Read: {max_bytes: 0}}}", "Read.max_bytes: must be greater than or equal to 256"),
        ("defaults: {context_window: 128k}", "must be a whole number without a unit, such as 128000, found '128k'"),
        ("server: {shutdown_grace_seconds: .inf}", "server.shutdown_grace_seconds: must be a finite number, found inf"),
        ("upstream: {idle_timeout_seconds: .nan}", "upstream.idle_timeout_seconds: must be a finite number, found nan"),
        ("upstream: {idle_timeout_seconds: soon}", "upstream.idle_timeout_seconds: must be a number, found 'soon'"),
        ("enabled: maybe", "enabled: must be true or false, found 'maybe'"),
        ("data_dir: 5", "data_dir: must be a path, found 5"),
        ("mode: perhaps", "mode: must be 'on', 'observe' or 'off', found 'perhaps'"),
        ("mode: [on]", "mode: must be 'on', 'observe' or 'off'"),
        ("mode: 1", "mode: must be 'on', 'observe' or 'off', found 1"),
        ("log: {level: loud}", "log.level: must be 'debug', 'info', 'warning' or 'error', found 'loud'"),
        ("log: {level: null}", "log.level: must be 'debug', 'info', 'warning' or 'error'"),
        ("defaults: {input: [smell]}", "defaults.input[0]: must be 'text', 'vision', 'audio', 'video' or 'file'"),
        ("artifacts: {url: 'ftp://a/b'}", "artifacts.url: must be s3://bucket/prefix"),
        ("artifacts: {url: 's3://id:secret@b/p'}", "artifacts.url: must be s3://bucket/prefix"),
        ("artifacts: {url: 's3://'}", "artifacts.url: must name a bucket or a folder"),
        ("artifacts: {url: 'file://a'}", "artifacts.url: must be s3://bucket/prefix"),
        ("artifacts: {public_url: 'https://a/?q'}", "artifacts.public_url: must be a URL such as"),
        ("artifacts: {public_url: 'https://u:p@a'}", "artifacts.public_url: must be a URL such as"),
        ("artifacts: {agent_path: kept}", "artifacts.agent_path: must be an absolute path"),
        ('artifacts: {agent_path: "/a\'b"}', "artifacts.agent_path: must be an absolute path"),
        ("server: {port: 1}\nserver: {host: a}", ", line 2: `server` appears twice"),
        ("models:\n- {match: a}\n- match: b\n  match: c", ", line 4: `match` appears twice"),
        ("server: {port: 1, port: 2}", ", line 1: `port` appears twice"),
        ("- a", "must hold keys and values, such as `server: {port: 8787}`"),
        ("a: [b", ", line 1: is not YAML: expected ',' or ']', but got '<stream end>'"),
        ("data_dir: 2024-13-45", "is not YAML"),
        ("x: " + "[" * 3_000, "is not YAML"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key_and_what_is_allowed(yaml, says, config):
    (line,) = mistakes(config(yaml))
    assert says in line


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("CONTEXT_PROXY_SERVR__PORT", "1", "CONTEXT_PROXY_SERVR__PORT: unknown setting; valid here are ARTIFACTS, "),
        ("CONTEXT_PROXY_SERVER__PRT", "1", "CONTEXT_PROXY_SERVER__PRT: unknown setting; valid here are ADMIN_KEY, "),
        ("CONTEXT_PROXY_", "1", "CONTEXT_PROXY_: unknown setting; valid here are ARTIFACTS, "),
        ("CONTEXT_PROXY_PROT", "", "CONTEXT_PROXY_PROT: unknown setting"),
        ("CONTEXT_PROXY_ENABLED__X", "1", "CONTEXT_PROXY_ENABLED__X: unknown setting; ENABLED has no settings below"),
        ("CONTEXT_PROXY_MODELS__0__MATCH", "x", "CONTEXT_PROXY_MODELS__0__MATCH: unknown setting"),
        ("CONTEXT_PROXY_MODELS", "[{", "CONTEXT_PROXY_MODELS: is not JSON: expecting property name"),
        ("CONTEXT_PROXY_MODELS", "gpt", "models: must be a list, found 'gpt'"),
        ("CONTEXT_PROXY_UPSTREAM", "http://x", "upstream: must hold keys and values, found 'http://x'"),
    ],
)
def test_a_mistake_in_a_variable_is_one_line_too(variable, value, says, monkeypatch):
    monkeypatch.setenv(variable, value)
    (line,) = mistakes()
    assert line.startswith(says)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("context_proxy_Server__Port", "1e3", "server.port: must be a whole number, found '1e3'"),
        ("CONTEXT_PROXY_SERVER", '{"port": 1.5}', "server.port: must be a whole number, found 1.5"),
        ("CONTEXT_PROXY_MODELS", '[{"max_images": 1}]', "models[0].match: must be set"),
        ("CONTEXT_PROXY_LEARNING__ENABLED", "si", "learning.enabled: must be true or false, found 'si'"),
        ("CONTEXT_PROXY_TOOL_OUTPUT__NEVER", "Read", "tool_output.never: must be a list, found 'Read'"),
        (
            "CONTEXT_PROXY_TOOL_OUTPUT__TOOLS__读",
            '{"max_bytes": 0}',
            "tool_output.tools.读.max_bytes: must be greater than or equal to 256, or left out, found 0",
        ),
        ("UPSTREAM", "nope", "upstream.base_url: must be a URL such as https://api.openai.com/v1, found 'nope'"),
        (
            "OPENAI_API_KEY",
            "sk SECRET",
            "upstream.api_key: must be visible ASCII characters without spaces, as it goes into a header",
        ),
    ],
)
def test_a_wrong_value_names_its_variable_as_it_was_written(variable, value, says, monkeypatch):
    monkeypatch.setenv(variable, value)
    assert mistakes() == [f"{says} ({variable})"]


def test_a_wrong_value_names_no_variable_that_it_does_not_come_from(config, monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_SERVER", '{"host": "h", "port": 2}')
    wrong_in_flag = mistakes(config("server: {}"), {"server": {"port": "x"}})
    assert wrong_in_flag == ["server.port: must be a whole number, found 'x'"]
    assert mistakes(config("server: {workers: x}")) == ["server.workers: must be a whole number, found 'x'"]


def test_of_two_variables_the_one_that_is_in_force_is_named(monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_SERVER", '{"port": 1}')
    monkeypatch.setenv("CONTEXT_PROXY_SERVER__PORT", "x")
    monkeypatch.setenv("UPSTREAM", "http://a")
    monkeypatch.setenv("CONTEXT_PROXY_UPSTREAM__BASE_URL", "nope")
    assert [line.rpartition(" ")[2] for line in mistakes()] == [
        "(CONTEXT_PROXY_UPSTREAM__BASE_URL)",
        "(CONTEXT_PROXY_SERVER__PORT)",
    ]


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        ('"a\\nb": 1', "a\\x0ab: unknown setting; valid here are artifacts, "),
        ('server: {"a\\e[2Jb": 1}', "server.a\\x1b[2Jb: unknown setting; valid here are admin_key, "),
        ("模型: 1", "模型: unknown setting; valid here are artifacts, "),
        ("Server: {port: 1}", "Server: unknown setting; valid here are artifacts, "),
        ("server: {1: 2}", "server[1]: keys should be strings, found 1"),
        (f"server: {{port: '{'1' * 5_000}'}}", "server.port: unable to parse input string as an integer"),
        (f"{'k' * 500}: 1", f"{'k' * 80}: unknown setting"),
        ("server: {port: ８０}", "server.port: must be a whole number, found '８０'"),
    ],
)
def test_an_odd_name_or_value_in_a_file_is_reported_in_one_line(yaml, says, config):
    (line,) = mistakes(config(yaml))
    assert line.startswith(says)
    assert line.isprintable()
    assert len(line) < 400


def test_an_odd_variable_is_reported_in_one_line(monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_A\nB", "1")
    monkeypatch.setenv("CONTEXT_PROXY_MODELS", "[" * 100_000)
    unknown, deep = mistakes()
    assert unknown.startswith("CONTEXT_PROXY_A\\x0aB: unknown setting")
    assert deep == "CONTEXT_PROXY_MODELS: is not JSON: nested too deeply"


def test_all_mistakes_are_reported_at_once(config, monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_PROT", "1")
    monkeypatch.setenv("CONTEXT_PROXY_MODELS", "[")
    monkeypatch.setenv("CONTEXT_PROXY_BUDGET__FILL", "7")
    found = mistakes(config("foo: 1\nserver: {port: x, prt: 1}"), {"log": {"level": "loud"}})
    assert sorted(line.split(":")[0] for line in found) == [
        *("CONTEXT_PROXY_MODELS", "CONTEXT_PROXY_PROT", "budget.fill", "foo", "log.level", "server.port"),
        "server.prt",
    ]


def test_an_unreadable_file_is_reported_with_the_other_mistakes(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTEXT_PROXY_PROT", "1")
    first, second = mistakes(tmp_path / "missing.yaml")
    assert first == f"{tmp_path / 'missing.yaml'}: cannot be read: No such file or directory"
    assert second.startswith("CONTEXT_PROXY_PROT")
    (tmp_path / "binary.yaml").write_bytes(b"a: \xff")
    assert mistakes(tmp_path / "binary.yaml")[0].endswith("binary.yaml: is not UTF-8")
