"""An agent loop over openai-python: it reads a log for as long as the model asks for one."""

import json
import sys
from pathlib import Path

from openai import OpenAI

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "read_log", "parameters": PARAMETERS}}]

client = OpenAI(max_retries=0)
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    reply = client.chat.completions.create(model="embedded-model", messages=messages, tools=TOOLS).choices[0].message
    messages.append(reply.model_dump(exclude_none=True))
    if not reply.tool_calls:
        break
    for call in reply.tool_calls:
        content = Path(json.loads(call.function.arguments)["path"]).read_text()
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
print(reply.content)
