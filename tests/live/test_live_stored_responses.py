"""openai-python on the Responses API where the upstream keeps responses: it continues from one in which the proxy's own
tool was called on the way, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.journey import KEY, World, long_text, world
from support.sdks import openai_python
from support.upstream import Call, Reply, ScriptedModel
from support.upstream.keeping import keeping

TOOLS: Any = [{"type": "function", "name": "fetch", "parameters": {"type": "object"}, "strict": False}]
PAGE = "line 2500: value"
TASK: Any = [
    {"role": "user", "content": "Look."},
    {"type": "function_call", "call_id": "c", "name": "fetch", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": long_text(5_000)},
]


@pytest.fixture
def server() -> ScriptedModel:
    return keeping()


@pytest.fixture
def proxied(tmp_path: Path, server: ScriptedModel) -> Iterator[World]:
    with world(tmp_path, server, [{}]) as found:
        yield found


@pytest.fixture
def client(proxied: World) -> Iterator[Any]:
    with openai_python().OpenAI(base_url=proxied.proxies[0], api_key=KEY, max_retries=0) as found:
        yield found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_openai_python_continues_from_a_response_by_its_id(
    client: Any, proxied: World, server: ScriptedModel, stream: bool
) -> None:
    options = {"model": "m", "tools": TOOLS}
    previous = client.responses.create(**options, input=TASK).id
    name = next(name for name in proxied.kept if name.startswith("tool_fetch_"))
    reads = Call("read_artifact", {"id": name, "lines": "2500-2501"})
    server.says += [Reply("", (reads,), "hm"), Reply("Both.", (reads, Call("fetch", {}))), Reply("It is 6.")]
    new: Any = [{"role": "user", "content": "Really?"}]
    for text in ("Both.", "It is 6.", "Reply 5."):
        options["previous_response_id"] = previous
        if not stream:
            response = client.responses.create(**options, input=new)
        else:
            with client.responses.stream(**options, input=new) as stream:
                begun = next(event.response.id for event in stream if event.type == "response.created")
                response = stream.get_final_response()
            assert begun == response.id
        previous = response.id
        assert response.output_text == text
        calls = [item.call_id for item in response.output if item.type == "function_call"]
        results = [{"type": "function_call_output", "call_id": call, "output": "fetched"} for call in calls]
        new = [*results, {"role": "user", "content": "Go on."}]
    assert server.refusals == 0
    assert PAGE in str(server.sent[-2].json["input"])
    assert [item.get("name") for item in server.held[f"resp_{server.last.number:024d}"] if "name" in item] == [
        "fetch",
        "read_artifact",
        "read_artifact",
        "fetch",
    ]
