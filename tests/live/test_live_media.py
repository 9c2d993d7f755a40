"""openai-python sends an image and a PDF through a running proxy to an upstream that takes neither."""

import json
import re
from pathlib import Path
from typing import Any

from support.live_proxy import running_before
from support.media_samples import PDF, PNG, base64_of, file_part, image_part
from support.sdks import openai_python
from support.upstream import Has, ScriptedModel, words

NO_IMAGES = Has(['"type": "image_url"'], "image input is not supported - hint: you may need to provide the mmproj", 500)
NO_FILES = Has(['"type": "file"'], "messages[0]: unknown variant `file`, expected `text` at line 1 column 80", 422)
"""In the words of llama-server and of DeepSeek."""


def test_an_image_and_a_pdf_are_healed_once_and_then_known(tmp_path):
    model = ScriptedModel([NO_IMAGES, NO_FILES], words("I read text."))
    content: Any = [{"type": "text", "text": "What is this?"}, image_part(), file_part(PDF)]
    with (
        running_before(model, tmp_path / "proxy", LOG__FORMAT="json") as proxy,
        openai_python().OpenAI(base_url=proxy.base_url, api_key="sk-test", max_retries=0) as client,
    ):
        for _ in range(2):
            answer = client.chat.completions.create(model="text-only", messages=[{"role": "user", "content": content}])
            assert answer.choices[0].message.content == "I read text."
    first, healed, *later = [sent.messages for sent in model.sent]
    assert [part["type"] for part in first[0]["content"]] == ["text", "image_url", "file"]
    question, about_image, about_pdf = re.split(r"\n(?=\[cannot read\])", healed[0]["content"])
    assert question == "What is this?"
    assert about_image.startswith("[cannot read] image.png")
    assert about_pdf.startswith("[cannot read] report.pdf")
    assert not any("image_url" in json.dumps(messages) for messages in later)
    assert len(model.sent) <= 4, "each kind is refused once"

    for file, notice in ((PNG, about_image), (PDF, about_pdf)):
        place = notice.rsplit(" ", 1)[1].removesuffix(".")
        assert Path(place).read_bytes() == file, "the way to it works"
    log = proxy.log()
    learned = [json.loads(line)["lesson"] for line in log.splitlines() if '"lesson_learned"' in line]
    assert learned[0] == "refuses vision"
    assert base64_of(PNG)[:24] not in log
    assert "report.pdf" not in log
