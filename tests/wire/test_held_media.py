"""What each API can hold: whatever a message contains, no part is made that its API has no place for."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from support.media_samples import DOCX, MP4, PDF, PNG, WAV, data_url, mcp_block
from support.strategies import notices

from proxy.core.conversation import TOOL_ROLES, Fetched, Message, references_in
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import Modality, ToolImages
from proxy.wire import WIRES, Wire

AWAY = "https://example.org/a.png"
ALL = Routes(frozenset(Modality))
KINDS = {
    "image": (PNG, "image/png"),
    "audio": (WAV, "audio/wav"),
    "video": (MP4, "video/mp4"),
    "PDF": (PDF, "application/pdf"),
    "document": (DOCX, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    "empty": (b"", "image/png"),
}


def texts_with(content: bytes, mime: str) -> dict[str, str]:
    return {
        "data URL": f"Here: {data_url(content, mime)} it is.",
        "block in JSON": json.dumps([mcp_block(content, mime, mime.partition("/")[0])]),
        "base64 member": json.dumps({"mimeType": mime, "data": base64.b64encode(content).decode()}),
        "structured": json.dumps({"routing": "file", "file": data_url(content, mime)}),
    }


def at_an_address(member: str) -> str:
    """A structured result whose content is elsewhere."""
    image = {"type": "image_url", "image_url": {"url": AWAY}}
    return json.dumps({"routing": "image_url" if member == "imageUrl" else "file", member: image})


CASES = {f"{kind}, {way}": text for kind, of in KINDS.items() for way, text in texts_with(*of).items()} | {
    "address of an image": at_an_address("imageUrl"),
    "address of a file": at_an_address("file"),
    "file id": json.dumps({"routing": "file", "file": {"type": "file", "file": {"file_id": "file-1"}}}),
}


def message_of(wire: Wire, role: str, text: str) -> Message:
    members: dict[str, Any] = {"role": role, "content": text}
    if wire.path == "/messages" and role == "tool":
        result = {"type": "tool_result", "tool_use_id": "c", "content": text}
        calls = [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]}]
        body = {"model": "m", "max_tokens": 9, "messages": [*calls, {"role": "user", "content": [result]}]}
        return wire.parse(json.dumps(body).encode()).conversation[-1]
    if wire.path == "/responses":
        item = {"type": "function_call_output", "call_id": "c", "output": text} if role == "tool" else members
        return wire.parse(json.dumps({"model": "m", "input": [item]}).encode()).conversation[-1]
    return wire.parse(json.dumps({"model": "m", "messages": [members | {"tool_call_id": "c"}]}).encode()).conversation[
        -1
    ]


def parts_in(found: Any) -> list[dict[str, Any]]:
    """The media parts of a rendered message, wherever they are."""
    if isinstance(found, list):
        return [part for one in found for part in parts_in(one)]
    if not isinstance(found, dict):
        return []
    own = (
        [found] if found.get("type") not in (None, "text", "input_text", "tool_result", "function_call_output") else []
    )
    inside = [part for name in ("content", "output") for part in parts_in(found.get(name))]
    images = [{"type": "ollama", "image": image} for image in found.get("images", ())]
    return [one for one in own if one["type"] != "message"] + inside + images


def holds(path: str, part: dict[str, Any]) -> bool:
    """Whether an API documents this part."""
    match path, part["type"]:
        case "/messages", "image":
            source = part["source"]
            return source["type"] == "url" or (bool(source["data"]) and source["media_type"].startswith("image/"))
        case "/messages", "document":
            return part["source"].get("media_type") == "application/pdf"
        case "/responses", "input_image" | "input_file" | "input_audio":
            return True
        case "/chat/completions", "image_url" | "input_audio" | "file" | "video_url":
            return True
        case "/api/chat", "ollama":
            return base64.b64decode(part["image"]) == PNG
    return False


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages", "/api/chat"])
@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fetched", [False, True])
def test_no_part_is_made_that_the_api_cannot_hold(path: str, role: str, case: str, fetched: bool) -> None:
    wire = next(one for one in WIRES.values() if one.path == path)
    message = message_of(wire, role, CASES[case])
    resolved = {one.address: Fetched(PNG, "image/png", "a.png") for one in references_in(message)} if fetched else {}
    step = RouteMedia(ALL, ToolImages.KEEP if wire.results_hold_media else ToolImages.USER_AFTER_BATCH, resolved)
    edits = list(step(1, message, "look", notices()))
    if not edits:
        assert (
            message.role in TOOL_ROLES
            or "address" in case
            or case == "file id"
            or "structured" in case
            or "empty" in case
        )
        return
    after = [message.changed({edits[0].at: edits[0].becomes})]
    after += [message.beside("user", edits[0].moved.parts)] if edits[0].moved else []
    parts = [part for one in after for part in parts_in(json.loads(one.raw))]
    assert all(holds(path, part) for part in parts), parts
    shown = [edit for edit in edits if edit.media and edit.media.route != "description"]
    assert len(parts) == len(shown)
    described = b"".join(one.raw for one in after)
    assert described.count(b"[cannot read]") == len(edits) - len(shown)
