"""Other paths to the same wire, through a running proxy: Azure's, slashes, prefixes; unknown paths get a hint."""

import json

import pytest
from support.sdks import openai_python
from support.upstream.sockets import OK, Request, SocketServer, answering, posted

LONG = "\n".join(f"line {number} of what the tool found" for number in range(5_000))
CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
CONVERSATION = {
    "messages": [
        {"role": "user", "content": "Search."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": LONG},
    ]
}
LONG_BODY = json.dumps(CONVERSATION).encode()
DEPLOYMENT = "/openai/deployments/my%2Dgpt/chat/completions?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("path", "upstream_path"),
    [
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("//v1//chat/completions", "/v1/chat/completions"),
        ("/v1%20/chat/completions", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/chat/completions?x=1", "/v1/chat/completions?x=1"),
        ("/openai/v1/chat/completions?api-version=preview", "/openai/v1/chat/completions?api-version=preview"),
        (DEPLOYMENT, DEPLOYMENT),
        ("/api/v1/chat/completions", "/api/v1/chat/completions"),
        ("/v1beta/openai/chat/completions", "/v1beta/openai/chat/completions"),
    ],
)
async def test_every_path_to_a_wire_is_fitted_and_goes_where_the_base_url_says(path, upstream_path, client, seen):
    client.ask(f"POST {path}", LONG_BODY)
    status, headers, _ = await client.answer()
    (request,) = posted(seen)
    assert request.line.decode() == f"POST {upstream_path} HTTP/1.1"
    assert (status, headers[b"x-context-proxy-edits"]) == (200, b"retrieval_tool=1;truncate_tool_output=1")
    assert len(request.body) < len(LONG_BODY)


@pytest.mark.parametrize("base_path", ["", "/v1", "/openai", "/openai/v1"])
async def test_azure_gets_its_path_and_its_key_and_the_deployment_is_the_model(base_path, start, connect, port):
    seen: list[Request] = []
    address = f"http://127.0.0.1:{port}{base_path}"
    with_path = start("--upstream", address, UPSTREAM__API_KEY="sk-configured-canary", LOG__LEVEL="debug")
    async with SocketServer(answering(OK, seen=seen), port), connect(with_path) as client:
        client.ask(f"POST {DEPLOYMENT}", LONG_BODY, "api-key: azure-canary")
        status, headers, _ = await client.answer()
        named = json.dumps({"model": "gpt-other", **CONVERSATION}).encode()
        client.ask(f"POST {DEPLOYMENT}", named, "api-key: azure-canary", "x-request-id: named")
        await client.answer()
        (request, _) = posted(seen)
        assert request.line == f"POST {DEPLOYMENT} HTTP/1.1".encode()
        assert request.values(b"api-key") == [b"azure-canary"]
        assert request.values(b"authorization") == []
        request_id = headers[b"x-request-id"].decode()
        assert (await with_path.logged(event="request_done", request_id=request_id))["model"] == "my-gpt"
        assert (await with_path.logged(event="request_done", request_id="named"))["model"] == "gpt-other"
        assert "azure-canary" not in with_path.log()
        name = (await with_path.logged(event="tool_output_truncated"))["artifact"]
        for key, expected in (("azure-canary", 200), ("another", 404)):
            client.ask(f"GET /artifacts/{name}", None, f"api-key: {key}")
            status, _, content = await client.answer()
            assert status == expected
            assert (content == LONG.encode()) == (expected == 200)


@pytest.mark.parametrize(
    "line",
    [
        "POST /v1/messages/count_tokens",
        "POST /v1/messages/batches?x=1",
        "POST /v1/threads/thread_1/messages",
        "POST /v1/responses/input_tokens",
        "POST /v1/chat/completions/chatcmpl-1",
        "POST /openai/deployments/NAME/embeddings?api-version=1",
        *("GET /health", "GET /props", "GET /slots?fail_on_no_slot=1", "POST /tokenize"),  # a llama-server's own
        *("DELETE /v1/files/a%2Fb?x=1&x=2", "PATCH /v1/x//y?q=a+b%20c", "GET /v1/batches?after=%7B"),
        "POST /v1/files/..a/v1.5../.x",
    ],
)
async def test_what_is_no_path_to_a_wire_passes_untouched(line, client, seen):
    body = LONG_BODY if line.startswith("POST") else b""
    client.ask(line, body, "content-type: text/odd")
    status, headers, _ = await client.answer()
    assert (f"{line} HTTP/1.1", body) in [(request.line.decode(), request.body) for request in seen]
    assert (status, len(posted(seen))) == (200, bool(body))
    assert b"x-context-proxy-tokens" not in headers


OUTSIDE = ["/v1/../../x", "/v1/..", "/v1/%2e%2e/x", "/v1/..%2Fx", "/v1/./chat/completions", "/v1/..\\x", "/v1/a/..;b/x"]


@pytest.mark.parametrize(
    "line",
    [
        *(f"{method} {path}" for method in ("GET", "POST") for path in OUTSIDE),
        *("POST /openai/../x/chat/completions", "POST /a/%2e%2e/chat/completions", "POST /a/..%2F/chat/completions"),
        *("POST /openai/../x", "GET /v1/retrieve/..%2F..%2Fowner-secret"),
    ],
)
async def test_no_path_leads_out_of_the_api(line, client, seen):
    client.ask(line, LONG_BODY)
    status, _, body = await client.answer()
    assert (status, json.loads(body)["error"]["code"]) == (400, "malformed_request")
    assert posted(seen) == []


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime?model=m", "/openai/v1/realtime"])
async def test_a_websocket_is_refused_at_once(path, client):
    """Nothing goes upstream: there is none here. Codex then speaks HTTP."""
    handshake = ("connection: keep-alive, Upgrade", "upgrade: WebSocket", "sec-websocket-version: 13")
    client.ask(f"GET {path}", None, *handshake, "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==")
    status, headers, body = await client.answer()
    assert (status, headers[b"upgrade"], headers[b"connection"]) == (426, b"HTTP/1.1", b"upgrade")
    assert json.loads(body)["error"]["code"] == "upgrade_refused"
    client.ask("GET /healthz")
    assert (await client.answer())[0] == 200


API_PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat", "/v1/models", "/v1/a/../b"]
OTHER_PATHS = ["/healthz", "/decisions", "/artifacts/x", "/mcp", "/v1/compress", "/", "/nowhere", "*"]


@pytest.mark.parametrize("path", [*API_PATHS, *OTHER_PATHS])
async def test_a_trace_is_not_forwarded_as_its_echo_would_show_the_operators_key(path, client, seen):
    client.ask(f"TRACE {path}")
    status, headers, body = await client.answer()
    client.ask("GET /healthz")
    assert (await client.answer())[0] == 200
    assert (status, b"TRACE" in headers[b"allow"]) == (405, False)
    assert headers[b"allow"]
    assert json.loads(body)["error"]
    assert [request for request in seen if request.line.startswith(b"TRACE")] == []


@pytest.mark.parametrize("path", [*API_PATHS, *OTHER_PATHS, "example.com:443", "http://example.com/v1/models"])
async def test_a_tunnel_is_refused_and_ends_the_connection(path, client, seen):
    client.ask(f"CONNECT {path}")
    client.writer.write(b"\x16\x03\x01")
    status, headers, body = await client.answer()
    assert await client.reader.read() == b""
    assert (status, headers[b"connection"]) == (501, b"close")
    assert json.loads(body)["error"]["code"] == "no_tunnel"
    assert [request for request in seen if request.line.startswith(b"CONNECT")] == []


async def test_a_probe_of_the_base_url_gets_an_answer(proxy, client):
    """Claude Code does, with a key or without; the same connection then serves what comes."""
    client.ask("HEAD /", None, "host: proxy.example", "x-forwarded-for: 1.2.3.4")
    status, pairs = await client.head()
    assert (status, dict(pairs)[b"content-length"]) == (200, b"0")
    client.ask("GET /healthz")
    assert (await client.answer())[0] == 200


def _completion():
    message = {"role": "assistant", "content": "Hello."}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps(whole | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def test_openais_client_for_azure_changes_nothing_but_its_endpoint(proxy):
    seen: list[Request] = []
    async with (
        SocketServer(answering(_completion(), seen=seen), proxy.upstream_port),
        openai_python().AsyncAzureOpenAI(
            azure_endpoint=f"http://127.0.0.1:{proxy.port}",
            api_key="azure-canary",
            api_version="2024-10-21",
            max_retries=0,
        ) as client,
    ):
        answer = await client.chat.completions.create(model="my-gpt", messages=CONVERSATION["messages"])
    assert answer.choices[0].message.content == "Hello."
    (request,) = posted(seen)
    assert request.line == b"POST /openai/deployments/my-gpt/chat/completions?api-version=2024-10-21 HTTP/1.1"
    assert request.values(b"api-key") == [b"azure-canary"]
    assert len(request.body) < len(LONG_BODY)


USE = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
CLAUDES = {
    "max_tokens": 500,
    "messages": [
        {"role": "user", "content": "Search."},
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": LONG}]},
    ],
}
CLAUDES_BODY = json.dumps(CLAUDES).encode()
VERTEX = "/projects/p/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5@20250929"


@pytest.mark.parametrize(
    ("path", "upstream_path"),
    [
        ("/v1/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("/messages", "/v1/messages"),
        (f"{VERTEX}:rawPredict", f"/v1{VERTEX}:rawPredict"),
        (f"/v1{VERTEX}:streamRawPredict", f"/v1{VERTEX}:streamRawPredict"),
    ],
)
async def test_every_path_to_claude_is_fitted(path, upstream_path, proxy, client, seen):
    body = json.dumps({"anthropic_version": "vertex-2023-10-16", **CLAUDES}).encode()
    client.ask(f"POST {path}", body)
    status, headers, _ = await client.answer()
    (request,) = posted(seen)
    assert request.line.decode() == f"POST {upstream_path} HTTP/1.1"
    assert (status, headers[b"x-context-proxy-edits"]) == (200, b"retrieval_tool=1;truncate_tool_output=1")
    sent = json.loads(request.body)
    assert sent["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in sent
    request_id = headers[b"x-request-id"].decode()
    done = await proxy.logged(event="request_done", request_id=request_id)
    assert (done["model"] == "claude-sonnet-4-5@20250929") is ("Predict" in path)


BINARY = bytes(range(256)) * 40
EVENT_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\ncontent-length: 10240\r\n\r\n"


@pytest.mark.parametrize("action", ["invoke", "invoke-with-response-stream", "converse-stream"])
async def test_bedrocks_requests_and_binary_replies_pass_byte_for_byte(action, proxy, client):
    seen: list[Request] = []
    path = f"/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/{action}"
    async with SocketServer(answering(EVENT_STREAM + BINARY, seen=seen), proxy.upstream_port):
        client.ask(f"POST {path}", CLAUDES_BODY, "authorization: AWS4-HMAC-SHA256 Credential=x")
        status, headers, body = await client.answer()
    (request,) = posted(seen)
    assert (request.line.decode(), request.body) == (f"POST {path} HTTP/1.1", CLAUDES_BODY)
    assert request.values(b"authorization") == [b"AWS4-HMAC-SHA256 Credential=x"]
    assert (status, headers[b"content-type"], body) == (200, b"application/vnd.amazon.eventstream", BINARY)


@pytest.mark.parametrize("page", ["/healthz", "/readyz", "/metrics", "/healthz/", "/readyz/", "/metrics/"])
async def test_a_page_of_the_proxy_is_its_own(page, client, seen):
    client.ask(f"GET {page}")
    assert (await client.answer())[0] == 200
    assert [request.line for request in seen if page.encode() in request.line] == []


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1message", "did you mean http://localhost/v1/messages?"),
        ("/chat/completion", "did you mean http://localhost/v1/chat/completions?"),
        ("/v1/chat/completion", "did you mean http://localhost/v1/chat/completions?"),
        ("/v1/chat/completions/chat/completions", "did you mean http://localhost/v1/chat/completions?"),
        ("/v1/messages/v1/messages", "did you mean http://localhost/v1/messages?"),
        ("/v1/messages/messages", "did you mean http://localhost/v1/messages?"),
        ("/v1/responses/responses", "did you mean http://localhost/v1/responses?"),
        ("/api/chat/api/chat", "did you mean http://localhost/api/chat?"),
        ("/favicon.ico", "the API is at http://localhost/v1"),
    ],
)
async def test_an_unknown_path_gets_a_hint(path, hint, client):
    client.ask(f"POST {path}", LONG_BODY)
    status, _, body = await client.answer()
    assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_path")
    assert json.loads(body)["error"]["message"].endswith(hint)


NOT_THERE = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"


@pytest.mark.parametrize(
    ("path", "words", "is_ours"),
    [
        ("/llm/v1/chat/completions", b'{"detail":"Not Found"}', True),
        ("/llm/v1/messages", b'{"detail":"Not Found"}', True),
        ("/llm/v1/chat/completions", b'{"error":{"message":"The model `x` does not exist"}}', False),
        ("/openai/deployments/x/chat/completions", b'{"detail":"Not Found"}', False),
        ("/v1/chat/completions", b'{"detail":"Not Found"}', False),
    ],
)
async def test_a_prefix_that_the_upstream_does_not_know_is_named_with_the_right_address(
    path, words, is_ours, proxy, client
):
    async with SocketServer(answering(NOT_THERE % (len(words), words)), proxy.upstream_port):
        client.ask(f"POST {path}", LONG_BODY)
        status, _, body = await client.answer()
    assert status == 404
    assert (b"http://localhost/v1" + path.encode().partition(b"/v1")[2] in body) is is_ours
    assert (b"/llm is only the place of this proxy" in body) is is_ours
    assert (body == words) is not is_ours
