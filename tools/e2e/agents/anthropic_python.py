"""An agent loop over anthropic-python: `anthropic_python.py whole|streamed SCRIPT`."""

import sys
from pathlib import Path

from anthropic import Anthropic

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": "read_log", "description": "The whole of a log.", "input_schema": SCHEMA}]

mode, script = sys.argv[1:3]
client = Anthropic(max_retries=0)
messages = [{"role": "user", "content": script}]
options = {"model": "claude-sonnet-4-6", "max_tokens": 4_000, "tools": TOOLS, "thinking": {"type": "adaptive"}}
while True:
    if mode == "streamed":
        with client.messages.stream(messages=messages, **options) as stream:
            reply = stream.get_final_message()
    else:
        reply = client.messages.create(messages=messages, **options)
    messages.append({"role": "assistant", "content": reply.content})
    calls = [block for block in reply.content if block.type == "tool_use"]
    if not calls:
        break
    results = [(call.id, Path(call.input["path"]).read_text()) for call in calls]
    content = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results]
    messages.append({"role": "user", "content": content})
print(reply.content[-1].text)
