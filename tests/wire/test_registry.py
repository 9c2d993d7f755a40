"""Which wire a path leads to, and where it goes at the upstream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.config import RoutedUpstream
from proxy.core.text import jsontext
from proxy.wire import WIRES, PathMatch, Wire, like, match_path, wire_over
from proxy.wire.chat_completions import CHAT_COMPLETIONS
from proxy.wire.messages import MESSAGES
from proxy.wire.ollama import OLLAMA
from proxy.wire.responses import RESPONSES

VERTEX = "/v1/projects/p/locations/us-east5/publishers/anthropic/models"
DEPLOYMENT = "/openai/deployments/NAME/chat/completions"


def target(path: str, base_path: str, method: str = "POST") -> str | None:
    matched = match_path(method, path.encode(), base_path.encode())
    return None if matched is None else matched.path.decode()


@pytest.mark.parametrize(
    ("base_path", "path", "upstream"),
    [
        # /v1, or nothing, means the base URL, whatever that is.
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1", "//v1//chat/completions", "/v1/chat/completions"),
        ("/v1", "/chat/completions", "/v1/chat/completions"),
        ("/openai", "/v1/chat/completions", "/openai/chat/completions"),
        ("/api/paas/v4", "/v1/chat/completions", "/api/paas/v4/chat/completions"),
        ("/api/paas/v4", "/chat/completions", "/api/paas/v4/chat/completions"),
        ("/v1beta/openai", "//chat/completions//", "/v1beta/openai/chat/completions"),
        ("/openai/deployments/NAME", "/v1/chat/completions", DEPLOYMENT),
        # A base URL without a path, which means its /v1: sent as it came.
        ("/v1", DEPLOYMENT, DEPLOYMENT),
        ("/v1", "/openai/v1/chat/completions", "/openai/v1/chat/completions"),
        ("/v1", "/api/v1/chat/completions", "/api/v1/chat/completions"),
        ("/v1", "/compatible-mode/v1/chat/completions", "/compatible-mode/v1/chat/completions"),
        ("/v1", "/v1beta/openai/chat/completions", "/v1beta/openai/chat/completions"),
        ("/v1", "/api/paas/v4//chat/completions/", "/api/paas/v4/chat/completions"),
        # What the base URL ends with is not said twice.
        ("/api/v1", "/api/v1/chat/completions", "/api/v1/chat/completions"),
        ("/api", "/api/v1/chat/completions", "/api/v1/chat/completions"),
        ("/gate/api/v1", "/api/v1/chat/completions", "/gate/api/v1/chat/completions"),
        ("/openai/v1", "/openai/v1/chat/completions", "/openai/v1/chat/completions"),
        ("/compatible-mode/v1", "/compatible-mode/v1/chat/completions", "/compatible-mode/v1/chat/completions"),
        ("/v1beta/openai", "/v1beta/openai/chat/completions", "/v1beta/openai/chat/completions"),
        ("/openai", DEPLOYMENT, DEPLOYMENT),
        ("/openai/v1", DEPLOYMENT, DEPLOYMENT),
        ("/openai/deployments/NAME", DEPLOYMENT, DEPLOYMENT),
        # Another prefix goes behind the base URL without its /v1, and never out of what that names.
        ("/team-a/v1", DEPLOYMENT, "/team-a" + DEPLOYMENT),
        ("/team-a/openai/v1", DEPLOYMENT, "/team-a" + DEPLOYMENT),
        ("/team-a/v1", "/team-b/v1/chat/completions", "/team-a/team-b/v1/chat/completions"),
        # Whole segments only.
        ("/my-api/v1", "/api/v1/chat/completions", "/my-api/api/v1/chat/completions"),
        ("/v1", "/v10/chat/completions", "/v10/chat/completions"),
        # A base URL that ends in /v1, of a client that adds it.
        ("/v1", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/api/v3", "/v1//v1/v1/chat/completions", "/api/v3/chat/completions"),
        # As before there was more than one matched.
        ("/api/v3", "/v1/ACCOUNT/openai/chat/completions", "/api/v3/ACCOUNT/openai/chat/completions"),
    ],
)
def test_a_path_that_ends_in_a_wires_is_that_wire_and_goes_where_the_base_url_says(
    base_path: str, path: str, upstream: str
) -> None:
    matched = match_path("POST", path.encode(), base_path.encode())
    assert matched is not None
    assert (matched.wire, matched.path.decode()) == (CHAT_COMPLETIONS, upstream)


@pytest.mark.parametrize(
    ("base_path", "path", "upstream"),
    [
        ("/v1", "/v1/models", "/v1/models"),
        ("/api/v3", "/v1//models/", "/api/v3//models/"),
        ("/v1", "/v1/chat/completions/chatcmpl-1/messages", "/v1/chat/completions/chatcmpl-1/messages"),
        ("/v1", "/v1/completions", "/v1/completions"),
        ("/v1", "/v1/xchat/completions", "/v1/xchat/completions"),
        ("/v1", "/v1/chat%2Fcompletions", "/v1/chat%2Fcompletions"),
        ("/v1", "/openai/deployments/NAME/embeddings", "/openai/deployments/NAME/embeddings"),
        ("/openai/v1", "/openai/v1/files", "/openai/v1/files"),
        ("/api/v1", "/api/v1/models", "/api/v1/models"),
        ("/api/v3", "/api/v3/embeddings", "/api/v3/embeddings"),
        ("/v1", "/v1beta/openai/models", "/v1beta/openai/models"),
        ("/v1", "/compatible-mode/v1/files", "/compatible-mode/v1/files"),
        ("/anthropic", "/anthropic/v1/models", "/anthropic/v1/models"),
        ("/v1", "/v1/v1/models", "/v1/models"),
        ("/v1", "/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/v1", "/messages/count_tokens", "/v1/messages/count_tokens"),
        # Paths that only look like those of a wire.
        *(
            ("/v1", path, path)
            for path in (
                *("/v1/messages/count_tokens", "/v1/messages/batches/msgbatch_1/cancel", "/v1/threads/t_1/messages"),
                *("/v1/responses/resp_1/cancel", "/v1/responses/input_tokens", "/v1/chat/completions/chatcmpl-1"),
                *("/anthropic/v1/messages/count_tokens", "/openai/responses/resp_1"),
            )
        ),
        # Paths of self-hosted servers that stand beside their /v1.
        ("/v1", "/props", "/props"),
        ("/v1", "/slots/0", "/slots/0"),
        ("/v1", "/health", "/health"),
        ("/gate/v1", "/tokenize", "/gate/tokenize"),
        # Ollama's own API, which is beside /v1.
        ("/v1", "/api/tags", "/api/tags"),
        ("/gate/v1", "/api/blobs/sha256:0a", "/gate/api/blobs/sha256:0a"),
        # Bedrock, and what is not fitted of Vertex AI.
        ("/v1", "/model/anthropic.claude-x-v1%3A0/invoke", "/model/anthropic.claude-x-v1%3A0/invoke"),
        ("/v1", "/model/x/invoke-with-response-stream", "/model/x/invoke-with-response-stream"),
        ("/v1", f"{VERTEX}/count-tokens:rawPredict", f"{VERTEX}/count-tokens:rawPredict"),
        ("/v1", "/projects/p/locations/l/x:predict", "/v1/projects/p/locations/l/x:predict"),
    ],
)
def test_other_paths_below_an_api_pass_through(base_path: str, path: str, upstream: str) -> None:
    assert match_path("POST", path.encode(), base_path.encode()) == PathMatch(None, upstream.encode())


@pytest.mark.parametrize("path", ["/", "/v1", "/metrics", "/apis/v2/x", "/v10/models", "/artifacts/x", "*", ""])
def test_other_paths_are_no_apis(path: str) -> None:
    assert match_path("POST", path.encode(), b"/v1") is None


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "OPTIONS"])
def test_only_a_post_is_for_a_wire(method: str) -> None:
    """`GET /v1/chat/completions` lists what is stored."""
    assert match_path(method, b"/v1/chat/completions", b"/v1") == PathMatch(None, b"/v1/chat/completions")
    assert match_path(method, b"/v1//chat/completions/", b"/v1") == PathMatch(None, b"/v1//chat/completions/")
    assert match_path(method, b"/chat/completions", b"/v1") is None


@pytest.mark.parametrize(
    ("base_path", "path", "wire", "upstream"),
    [
        ("/v1", "/v1/messages", MESSAGES, "/v1/messages"),
        ("/v1", "//v1/messages/", MESSAGES, "/v1/messages"),
        ("/v1", "/anthropic/v1/messages", MESSAGES, "/anthropic/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages", MESSAGES, "/anthropic/v1/messages"),
        ("/anthropic/v1", "/anthropic/v1/messages", MESSAGES, "/anthropic/v1/messages"),
        ("/anthropic/v1", "/v1/messages", MESSAGES, "/anthropic/v1/messages"),
        ("/v1", "/v1/responses", RESPONSES, "/v1/responses"),
        ("/v1", "/responses", RESPONSES, "/v1/responses"),
        ("/v1", "/openai/responses", RESPONSES, "/openai/responses"),
        ("/openai/v1", "/openai/v1/responses", RESPONSES, "/openai/v1/responses"),
        ("/v1", "/v1/chat/completions", CHAT_COMPLETIONS, "/v1/chat/completions"),
        ("/v1", "/v1/v1/messages", MESSAGES, "/v1/messages"),
        ("/v1", "/messages", MESSAGES, "/v1/messages"),
        ("/v1", "//messages/", MESSAGES, "/v1/messages"),
        ("/anthropic", "/messages", MESSAGES, "/anthropic/messages"),
        ("/v1", "/v1/v1/responses", RESPONSES, "/v1/responses"),
    ],
)
def test_a_path_may_have_any_prefix_of_its_api(base_path: str, path: str, wire: Wire, upstream: str) -> None:
    assert match_path("POST", path.encode(), base_path.encode()) == PathMatch(wire, upstream.encode())


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (DEPLOYMENT, "NAME"),
        ("/openai/deployments/my%20model%2Fx/chat/completions", "my model/x"),
        ("/openai/deployments/caf%C3%A9%FF/chat/completions", "café\ufffd"),
        ("/openai//deployments//NAME/extensions/chat/completions", "NAME"),
        ("/deployments/chat/completions", "chat"),
        ("/v1/chat/completions", ""),
    ],
)
def test_a_deployment_names_the_model(path: str, model: str) -> None:
    matched = match_path("POST", path.encode(), b"/v1")
    assert matched is not None
    assert matched.model == model


@pytest.mark.parametrize("call", ["rawPredict", "streamRawPredict"])
@pytest.mark.parametrize("prefix", ["", "/v1", "/v1/v1"])
def test_claude_on_vertex_is_named_by_its_path(call: str, prefix: str) -> None:
    path = f"{prefix}{VERTEX.removeprefix('/v1')}/claude-x%4020250929:{call}"
    matched = match_path("POST", path.encode(), b"/v1")
    assert matched == PathMatch(MESSAGES, f"{VERTEX}/claude-x%4020250929:{call}".encode(), "claude-x@20250929")
    assert match_path("GET", f"{VERTEX}/claude-x:{call}".encode(), b"/v1") == PathMatch(
        None, f"{VERTEX}/claude-x:{call}".encode()
    )


@pytest.mark.parametrize("path", [b"/model/x/invoke", VERTEX.encode() + b"/count-tokens:rawPredict"])
def test_what_passes_to_other_clouds_is_refused_in_the_words_of_claudes_api(path: bytes) -> None:
    assert wire_over(path) is MESSAGES


@pytest.mark.parametrize("path", [b"/api/chat", b"/v1/api/chat", b"//api/chat/"])
@pytest.mark.parametrize("base_path", [b"/v1", b""])
def test_ollamas_own_api_is_on_the_host_whatever_the_base_urls_say(base_path: bytes, path: bytes) -> None:
    assert match_path("POST", path, base_path) == PathMatch(OLLAMA, b"/api/chat")


def test_what_passes_beside_ollamas_chats_is_refused_in_its_words() -> None:
    assert wire_over(b"/api/tags") is OLLAMA
    assert wire_over(b"/api/v1/models") is CHAT_COMPLETIONS


_segments = st.sampled_from(["v1", "openai", "api", "a", "deployments", "chat", "completions"])
_paths = st.lists(_segments, min_size=1, max_size=5).map(lambda found: "/" + "/".join(found))


@given(_paths, _paths, st.sampled_from(["GET", "POST"]))
def test_no_path_leads_out_of_what_the_base_url_names(base_path: str, path: str, method: str) -> None:
    found = target(path, base_path, method)
    assert found is None or (found + "/").startswith(base_path.removesuffix("/v1") + "/")


@given(_paths, st.sampled_from(["/x", "/chat/completions"]))
def test_paths_below_v1_go_below_the_base_url(base_path: str, rest: str) -> None:
    assert target("/v1" + rest, base_path) == base_path + rest


@pytest.mark.parametrize("wire", WIRES.values(), ids=lambda wire: wire.path)
def test_a_wire_is_known_to_paths_settings_and_the_doctor_by_its_one_line(wire):
    found = match_path("POST", wire.end, b"/v1")
    assert found is not None
    assert found.wire is wire
    assert not wire.name or RoutedUpstream(base_url="http://a", wire=wire.name).is_only_for(wire.path)
    members, reported = wire.trial("Say hello.")
    request = wire.parse(jsontext.dump({"model": "m", **members}))
    assert [message.text() for message in request.conversation.messages] == ["Say hello."]
    assert reported
    assert reported not in members


def test_a_path_that_no_api_has_is_like_one_on_the_host():
    assert like(b"/api/chatt") == "/api/chat"


def test_settings_name_no_wire_that_is_not_in_the_registry():
    with pytest.raises(ValidationError, match="chat_completions"):
        RoutedUpstream(base_url="http://a", wire="lines")
