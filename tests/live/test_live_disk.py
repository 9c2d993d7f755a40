"""The event loop waits for no disk: one that hangs holds up only what needs it."""

from pathlib import Path
from typing import Final

import httpx
from support.live_proxy import running_together
from support.overflow_words import too_long
from support.upstream.sockets import SocketServer
from support.waiting import PATIENCE_SECONDS, until

PROGRAM: Final = Path(__file__).parents[1] / "support" / "disk_audit.py"
REFUSAL: Final = too_long(9_000, 20_000)
REPLY: Final = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}'
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
TURN: Final = [
    {"role": "user", "content": "Build it."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a line of the build\n" * 9_000},
]


async def refusing_what_is_long(connection):
    while True:
        is_long = len((await connection.request()).body) > 70_000
        status, body = (b"400 Bad Request", REFUSAL) if is_long else (b"200 OK", REPLY)
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        await connection.send(head % (status, len(body)) + body)


async def test_the_event_loop_never_touches_a_file_once_it_serves(tmp_path):
    notes, folder = tmp_path / "notes", tmp_path / "data"
    program = (str(PROGRAM), str(notes))
    async with SocketServer(refusing_what_is_long) as scripted:
        with running_together([folder], upstream_port=scripted.port, program=program) as (proxy,):
            before = notes.read_text()
            assert before, "the audit sees the start"
            async with httpx.AsyncClient(base_url=proxy.base_url, timeout=PATIENCE_SECONDS, trust_env=False) as client:
                for messages in (TURN, [{"role": "user", "content": "word " * 20_000}], TURN):
                    request = {"model": "m", "messages": messages}
                    await client.post("/chat/completions", json=request, headers={"authorization": "Bearer k"})
                await until((folder / "lessons.json").exists)
                for page in ("decisions", "metrics", "overview", "readyz"):
                    assert (await client.get(f"http://127.0.0.1:{proxy.port}/{page}")).status_code == 200
            assert [*(folder / "tool-output").glob("tool_bash_*")], "what was cut is kept"
            assert notes.read_text() == before
