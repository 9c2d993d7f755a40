"""The clients that agents use, through a running proxy to the demo's model server: nothing but the base URL changes."""

from pathlib import Path
from typing import Any

import pytest
from support.live_proxy import running_before
from support.sdks import openai_python
from support.upstream import as_json, model_server

MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
NODE = Path(__file__).parent / "node"


def _files(method, path, body):
    """The subset of OpenAI's /v1/files that the clients need; test files are all zeros, forms have none."""
    if (method, path) != ("POST", "/v1/files"):
        return None
    described = {"id": "file-1", "object": "file", "created_at": 1, "purpose": "assistants", "status": "processed"}
    name = "big.bin" if b'filename="big.bin"' in body else ""
    return as_json({**described, "filename": name, "bytes": body.count(0)})


@pytest.fixture(scope="module")
def base_url(tmp_path_factory):
    model = model_server(8_000)
    model.beside = _files
    with running_before(model, tmp_path_factory.mktemp("clients")) as proxy:
        yield proxy.base_url


def test_openai_python_gets_answers_streams_lists_and_uploads(base_url):
    with openai_python().OpenAI(base_url=base_url, api_key="sk-test", max_retries=0) as client:
        answer = client.chat.completions.create(model="m", messages=MESSAGES)
        assert answer.choices[0].message.content
        streamed = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        text = "".join(event.choices[0].delta.content or "" for event in streamed if event.choices)
        assert text == answer.choices[0].message.content
        assert [model.id for model in client.models.list()]
        file = client.files.create(file=("big.bin", bytes(3_000_000)), purpose="assistants")
        assert (file.bytes, file.filename) == (3_000_000, "big.bin")


def test_openai_python_sees_the_upstreams_errors_as_its_own(base_url):
    with openai_python().OpenAI(base_url=base_url, api_key="sk-test", max_retries=0) as client:
        with pytest.raises(openai_python().BadRequestError) as caught:
            client.chat.completions.create(model="m", messages=[])
        assert caught.value.status_code == 400


def test_openai_node_gets_answers_streams_and_uploads(base_url, node):
    assert node("client.mjs", base_url).split() == ["answered", "streamed", "uploaded"]
