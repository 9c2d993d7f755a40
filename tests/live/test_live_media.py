"""openai-python sends an image and a PDF through a running proxy to an upstream that takes neither."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from support.live_proxy import Proxy, running
from support.media_samples import PDF, PNG, base64_of, file_part, image_part
from support.sdks import openai_python
from support.serving import serving


class TextOnly:
    """Answers text, and refuses the first part of another kind as llama-server and DeepSeek do."""

    def __init__(self) -> None:
        self.received: list[list[dict[str, Any]]] = []

    async def answer(self, request: Request) -> JSONResponse:
        messages = (await request.json())["messages"]
        self.received.append(messages)
        kinds = [part["type"] for message in messages for part in message["content"] if isinstance(part, dict)]
        if "image_url" in kinds:
            return _refused(500, "image input is not supported - hint: you may need to provide the mmproj")
        if "file" in kinds:
            return _refused(422, "messages[0]: unknown variant `file`, expected `text` at line 1 column 80")
        reply = {"role": "assistant", "content": "I read text."}
        choice = {"index": 0, "message": reply, "finish_reason": "stop"}
        return JSONResponse({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "server_error", "code": status}}, status)


@pytest.fixture
def upstream() -> TextOnly:
    return TextOnly()


@pytest.fixture
def proxy(upstream: TextOnly, tmp_path: Path) -> Iterator[Proxy]:
    app = Starlette(routes=[Route("/v1/chat/completions", upstream.answer, methods=["POST"])])
    with serving(app) as url:
        port = int(url.rstrip("/").removesuffix("/v1").rpartition(":")[2])
        with running(tmp_path / "proxy", upstream_port=port, LOG__FORMAT="json") as found:
            yield found


def test_an_image_and_a_pdf_are_healed_once_and_then_known(upstream: TextOnly, proxy: Proxy) -> None:
    content: Any = [{"type": "text", "text": "What is this?"}, image_part(), file_part(PDF)]
    with openai_python().OpenAI(base_url=proxy.base_url, api_key="sk-test", max_retries=0) as client:
        for _ in range(2):
            answer = client.chat.completions.create(model="text-only", messages=[{"role": "user", "content": content}])
            assert answer.choices[0].message.content == "I read text."
    first, healed, *later = upstream.received
    assert [part["type"] for part in first[0]["content"]] == ["text", "image_url", "file"]
    question, about_image, about_pdf = re.split(r"\n(?=\[cannot read\])", healed[0]["content"])
    assert question == "What is this?"
    assert about_image.startswith("[cannot read] image.png")
    assert about_pdf.startswith("[cannot read] report.pdf")
    assert not any("image_url" in json.dumps(messages) for messages in later)
    assert len(upstream.received) <= 4, "each kind is refused once"

    for file, notice in ((PNG, about_image), (PDF, about_pdf)):
        place = notice.rsplit(" ", 1)[1].removesuffix(".")
        assert Path(place).read_bytes() == file, "the way to it works"
    log = proxy.log()
    learned = [json.loads(line)["refused"] for line in log.splitlines() if '"media_refusal_learned"' in line]
    assert learned[0] == ["vision"]
    assert base64_of(PNG)[:24] not in log
    assert "report.pdf" not in log
