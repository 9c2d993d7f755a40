"""`context-proxy doctor` before upstreams that are well, that want a key, that cannot stream, that are not there."""

import contextlib
import re
import socket
import ssl
import threading
from pathlib import Path

import pytest
import support
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from support.serving import serving
from support.upstream import listening, model_server

from proxy.commands.agents import Agent
from proxy.commands.doctor import Diagnosis, doctor, examined
from proxy.config import Settings

CERTIFICATE = Path(support.__file__).parent / "certificates" / "loopback.pem"
KEY = "sk-key-canary"
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}


def settings_for(url, folder, **upstream):
    return Settings(upstream={"base_url": url, **upstream}, data_dir=folder)


def found_at(url, folder, model=None, *, api=None, agent=None, **upstream):
    """The findings, by what they are about."""
    return {one.about: one for one in examined(settings_for(url, folder, **upstream), model, api, agent)}


def states(found):
    return {about: one.state for about, one in found.items()}


def answering(path, reply, *routes):
    return serving(Starlette(routes=[Route(f"/v1{path}", reply, methods=["POST"]), *routes]))


def upstream(models=("text-embedding-3", "chatty"), answer=ANSWER, status=200):
    """An upstream that wants KEY, and answers every request alike."""

    async def listed(request):
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return JSONResponse({"error": {"message": "no"}}, 401)
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in models]})

    async def chat(_):
        return JSONResponse(answer, status)

    return Starlette(routes=[Route("/v1/models", listed), Route("/v1/chat/completions", chat, methods=["POST"])])


def test_before_a_model_server_everything_is_well(tmp_path, capsys):
    with listening(model_server(8_000)) as url:
        assert doctor(settings_for(url, tmp_path), None) == 0
    lines = capsys.readouterr().out.splitlines()
    reported = [line.split()[:2] for line in lines if not line.startswith(" ")]
    about = ["store", "upstream", "key", "window", "tokenizer", "request", "stream", "tool"]
    assert [word for _, word in reported[:-1]] == about
    assert {state for state, _ in reported[:-1]} <= {"ok", "note"}
    assert lines[-1] == "A request goes through."


def test_what_a_server_of_ones_own_has_allocated_is_no_line_of_the_log(tmp_path, capsys):
    says = {
        "/v1/models": {"object": "list", "data": [{"id": "qwen3:8b", "object": "model"}]},
        "/api/version": {"version": "0.33.0"},
        "/api/ps": {"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 4_096}]},
    }

    async def answered(request):
        return JSONResponse(says[request.url.path])

    with serving(Starlette(routes=[Route(path, answered) for path in says])) as url:
        doctor(settings_for(url, tmp_path), None)
    shown = capsys.readouterr().out
    assert "4,096 tokens for qwen3:8b" in shown
    assert "window_allocated" not in shown


def test_the_window_is_shown_with_its_source(tmp_path):
    settings = Settings(
        data_dir=tmp_path, upstream={"base_url": "http://127.0.0.1:9"}, defaults={"context_window": 9_000}
    )
    found = {finding.about: finding for finding in examined(settings, "gpt-4o")}
    assert found["window"].text == "9,000 tokens for gpt-4o: config defaults"
    assert found["tokenizer"].text == "o200k_base, the model's own"


def test_an_upstream_that_is_not_there_is_wrong_and_the_rest_is_not_tried(tmp_path):
    with listening(model_server(8_000)) as url:
        pass
    found = found_at(url, tmp_path)
    assert states(found) == {"upstream": "wrong", "store": "ok", "request": "skipped"}
    assert "upstream.base_url" in found["upstream"].advice


@pytest.mark.parametrize(("key", "says"), [(None, "none is set here"), ("sk-other-canary", "refuses upstream.api_key")])
def test_a_missing_or_refused_key_is_reported_and_never_shown(key, says, tmp_path):
    with serving(upstream()) as url:
        found = found_at(url, tmp_path, api_key=key)
    assert (found["key"].state, found["request"].state) == ("wrong", "skipped")
    assert says in found["key"].text
    assert "canary" not in str(found)


def test_a_model_that_chats_is_tried_and_an_answer_in_one_piece_is_no_stream(tmp_path):
    with serving(upstream()) as url:
        found = found_at(url, tmp_path, api_key=KEY)
    assert found["request"].state == "ok"
    assert found["request"].text.startswith("chatty responds in ")
    assert (found["stream"].state, found["window"].state) == ("wrong", "note")
    assert "not as a stream" in found["stream"].text
    assert "`store: false`" in found["tool"].text


def test_where_the_tool_is_never_offered_nobody_is_told_how_to_get_it(tmp_path):
    with serving(upstream()) as url:
        never = Settings(artifacts={"retrieval_tool": "never"}).artifacts
        settings = settings_for(url, tmp_path, api_key=KEY).model_copy(update={"artifacts": never})
        assert "tool" not in [one.about for one in examined(settings)]


@pytest.mark.parametrize(
    ("status", "advice"),
    [(404, "--model NAME"), (401, "another key"), (429, "wait"), (400, "message"), (500, "its log")],
)
def test_a_refusal_is_reported_in_the_upstreams_words_with_advice(status, advice, tmp_path, capsys):
    with serving(upstream(answer={"error": {"message": "It is \x1b[31m so."}}, status=status)) as url:
        assert doctor(settings_for(url, tmp_path, api_key=KEY), "named") == 1
    shown = capsys.readouterr().out
    assert f"named was refused ({status}): It is \ufffd[31m so." in shown
    assert advice in shown.split("request ")[1].splitlines()[1]
    assert shown.splitlines()[-1] == "Something is wrong."


async def broken_stream(_):
    async def begun():
        yield b'data: {"choices": [{"delta": {"content": "hello"}}]}\n\n'

    return StreamingResponse(begun(), media_type="text/event-stream", headers={"content-length": "9000"})


async def no_answer(_):
    return JSONResponse({"hello": "world"})


@pytest.mark.parametrize(
    ("reply", "about", "says"),
    [(no_answer, "request", "not as OpenAI does"), (broken_stream, "stream", "the response broke off")],
)
def test_what_is_no_answer_of_a_model_and_a_stream_that_breaks_off_are_wrong(reply, about, says, tmp_path):
    with answering("/chat/completions", reply) as url:
        found = found_at(url, tmp_path, "m")[about]
    assert (found.state, found.text.endswith(says)) == ("wrong", True)


def test_an_upstream_without_a_list_wants_a_name(tmp_path, capsys):
    with answering("/chat/completions", lambda _: JSONResponse(ANSWER)) as url:
        nameless, named = states(found_at(url, tmp_path)), states(found_at(url, tmp_path, "m"))
        assert doctor(settings_for(url, tmp_path), None) == 0
    assert (nameless["upstream"], nameless["request"]) == ("note", "note")
    assert named["request"] == "ok"
    assert capsys.readouterr().out.splitlines()[-1].startswith("Nothing is wrong so far")


def test_a_store_that_cannot_be_written_is_wrong(tmp_path):
    (tmp_path / "file").touch()
    store = found_at("http://127.0.0.1:9", tmp_path / "file")["store"]
    assert (store.state, "Not a directory" in store.text) == ("wrong", True)


def api(path, answer, *models, key_header="authorization"):
    """An upstream with one wire, at which every key is right but no key is wrong."""

    async def listed(request):
        named = [{"id": name, "object": "model"} for name in models]
        return JSONResponse({"object": "list", "data": named}, 200 if key_header in request.headers else 401)

    async def replies(request):
        body = await request.json()
        if body["model"] not in models or key_header not in request.headers:
            return JSONResponse({"error": {"message": f"no {body['model']} here"}}, 404)
        if body.get("stream"):
            return Response("data: {}\n\ndata: [DONE]\n\n", media_type="text/event-stream")
        return JSONResponse(answer)

    return Starlette(routes=[Route("/v1/models", listed), Route(f"/v1{path}", replies, methods=["POST"])])


def headed(settings, model=None):
    """The findings about each upstream, by the requests that it serves."""
    found: dict[str, dict[str, Diagnosis]] = {}
    requests = ""
    for one in examined(settings, model):
        requests = one.text.partition(": ")[0] if one.about == "upstream" else requests
        found.setdefault(requests, {})[one.about] = one
    return found


def test_each_of_several_upstreams_is_tried_with_its_own_key_wire_and_model(tmp_path, capsys):
    claude = api("/messages", {"content": [{"type": "text", "text": "hello"}]}, "claude-9", key_header="x-api-key")
    gpt = api("/chat/completions", ANSWER, "claude-9", "gpt-9")
    codex = api("/responses", {"output": [{"type": "message"}]}, "gpt-9", "codex-9")
    with serving(claude) as first, serving(codex) as second, serving(gpt) as last:
        settings = Settings(
            upstream={"base_url": last, "api_key": KEY},
            upstreams=[
                {"match": "claude-*", "wire": "messages", "base_url": first, "api_key": KEY},
                {"match": "codex-*", "wire": "responses", "base_url": second, "api_key": KEY},
            ],
            data_dir=tmp_path,
            history="off",
        )
        found = headed(settings)
        named = headed(settings, "gpt-9")
        assert doctor(settings, None) == 0
    assert list(found) == [
        "",
        "Requests for claude-* at /v1/messages",
        "Requests for codex-* at /v1/responses",
        "All other requests",
    ]
    about = ["upstream", "key", "window", "tokenizer", "request", "stream"]
    told = [*about, "tool"]
    assert [list(one) for one in found.values()] == [["store"], about, told, told]
    tried = [one["request"].text.split()[0] for one in list(found.values())[1:]]
    assert tried == ["claude-9", "codex-9", "claude-9"], "claude-9 over chat completions is for all others"
    assert [one["request"].text.split()[0] for one in list(named.values())[1:]] == ["claude-9", "codex-9", "gpt-9"]
    assert capsys.readouterr().out.splitlines()[-1] == "A request goes through to each upstream."


def test_what_is_wrong_with_one_of_several_upstreams_names_its_settings(tmp_path):
    with serving(upstream(("other-1",))) as wants_a_key, serving(upstream()) as default:
        gone = {"match": "gone-*", "base_url": "http://127.0.0.1:9/v1"}
        keyless = {"match": "keyless", "base_url": wants_a_key}
        unfit = {"match": "unfit-*", "base_url": wants_a_key, "api_key": KEY}
        settings = Settings(
            upstream={"base_url": default, "api_key": KEY},
            upstreams=[gone, keyless, unfit],
            data_dir=tmp_path,
        )
        found = headed(settings)
    assert "upstreams[0].base_url" in found["Requests for gone-*"]["upstream"].advice
    assert "upstreams[1].api_key_file" in found["Requests for keyless"]["key"].advice
    assert "OPENAI_API_KEY" not in found["Requests for keyless"]["key"].advice
    without = found["Requests for unfit-*"]["request"]
    assert (without.state, "other-1" in without.advice) == ("wrong", True)
    assert found["All other requests"]["request"].state == "ok"


def test_the_api_that_an_upstream_speaks_is_tried_with_the_key_of_its_clients(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    versions: list[str | None] = []

    async def replies(request):
        versions.append(request.headers.get("anthropic-version"))
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"error": {"message": "no"}}, 401)
        if (await request.json()).get("stream"):
            return Response("data: {}\n\n", media_type="text/event-stream")
        return JSONResponse({"content": [{"type": "text", "text": "hello"}]})

    async def listed(request):
        is_right = request.headers.get("x-api-key") == KEY and "anthropic-version" in request.headers
        return JSONResponse({"data": [{"id": "claude-9"}]}, 200 if is_right else 401)

    with answering("/messages", replies, Route("/v1/models", listed)) as url:
        found = states(found_at(url, tmp_path, api="messages"))
        as_chat = found_at(url, tmp_path, "claude-9", api_key=KEY)
    assert [found[about] for about in ("upstream", "key", "request", "stream")] == ["ok"] * 4
    assert versions[:2] == ["2023-06-01"] * 2
    assert as_chat["request"].state != "ok"


def test_an_https_address_of_a_plain_server_and_an_unknown_host_are_distinguished(tmp_path):
    with serving(upstream()) as url:
        plain = found_at(url.replace("http:", "https:"), tmp_path)["upstream"]
    assert "does not speak TLS" in plain.text
    assert plain.advice == f"set upstream.base_url to {url}"
    unknown = found_at("http://no-such-host.invalid/v1", tmp_path)["upstream"]
    assert "the host name is unknown" in unknown.text
    assert "spelling" in unknown.advice


@contextlib.contextmanager
def accepting(served):
    """The port of a server that does this to each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for _ in range(3):
                with contextlib.suppress(OSError):
                    served(listener.accept()[0])

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_plain_address_of_a_server_with_tls_is_suspected(tmp_path):
    with accepting(lambda connection: connection.close()) as port:
        found = found_at(f"http://127.0.0.1:{port}/v1", tmp_path)["upstream"]
    assert "closed the connection" in found.text or "reset" in found.text  # it depends on what was read by then
    assert "is http:// or https:// right?" in found.advice


def test_a_proxy_of_the_environment_that_fails_comes_with_the_way_around_it(monkeypatch, tmp_path):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    found = found_at("http://127.0.0.1:8000/v1", tmp_path)["upstream"]
    assert "proxy 127.0.0.1:9) cannot be reached" in found.text
    assert found.advice == "check HTTP_PROXY or HTTPS_PROXY; NO_PROXY=127.0.0.1 goes around it"


def test_a_certificate_that_is_not_trusted_comes_with_what_makes_it_so(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with accepting(lambda connection: context.wrap_socket(connection, server_side=True).close()) as port:
        found = found_at(f"https://127.0.0.1:{port}/v1", tmp_path)["upstream"]
    assert found.text.endswith("its certificate is not trusted: self-signed certificate")
    assert "SSL_CERT_FILE" in found.advice


MEASURED = Agent(name="big", version="1.0", prompt_tokens=20_000, least_window=23_000, at_maker={"FEWER_TOOLS": "true"})


@pytest.mark.parametrize(
    ("agent", "window", "state", "says", "advice"),
    [
        (MEASURED, 8_000, "wrong", "20,000 tokens, .* 23,000; this one has 8,000", ", FEWER_TOOLS=true$"),
        (MEASURED, 64_000, "ok", "20,000 tokens", "^$"),
        (Agent(name="new"), 8_000, "note", "^how much room new needs is unknown$", "^$"),
    ],
)
def test_an_agent_that_has_no_room_in_the_window_is_told_both_figures_and_ways_out(
    tmp_path, agent, window, state, says, advice
):
    with listening(model_server(window, "vllm")) as url:
        found = found_at(url, tmp_path, agent=agent)["agent"]
    assert found.state == state
    assert re.search(says, found.text)
    assert re.search(advice, found.advice)
