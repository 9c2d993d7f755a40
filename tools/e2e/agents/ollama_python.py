"""An agent loop over ollama-python: `ollama_python.py whole|streamed SCRIPT`."""

import sys

from ollama import Client


def read_log(number: int) -> str:
    """A page of the log.

    Args:
        number: which one
    """
    return "".join(f"build {number} line {line}: took {line * 7919 % 10007} ms\n" for line in range(20))


mode, script = sys.argv[1:3]
client = Client()
messages = [{"role": "user", "content": script}]
while True:
    options = {"model": "m", "messages": messages, "tools": [read_log]}
    if mode == "streamed":
        text, calls = "", []
        for part in client.chat(**options, stream=True):
            text += part.message.content or ""
            calls += part.message.tool_calls or []
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
    else:
        message = client.chat(**options).message
        text, calls = message.content, message.tool_calls or []
        messages.append(message)
    if not calls:
        break
    messages += [{"role": "tool", "content": read_log(**call.function.arguments)} for call in calls]
print(text)
