"""An agent loop over LangChain's ChatOllama: `chat_ollama.py SCRIPT`."""

import os
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama


@tool
def read_log(number: int) -> str:
    """A page of the log."""
    return "".join(f"build {number} line {line}: took {line * 7919 % 10007} ms\n" for line in range(20))


model = ChatOllama(model="m", base_url=os.environ["OLLAMA_HOST"]).bind_tools([read_log])
messages = [HumanMessage(sys.argv[1])]
while True:
    reply = model.invoke(messages)
    messages.append(reply)
    if not reply.tool_calls:
        break
    messages += [ToolMessage(read_log.invoke(call["args"]), tool_call_id=call["id"]) for call in reply.tool_calls]
print(reply.text)
