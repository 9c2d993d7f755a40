"""LangChain's agent over langchain-openai: it reads a log for as long as the model asks for one."""

import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def read_log(path: str) -> str:
    """The whole of a log."""
    return Path(path).read_text()


agent = create_agent(ChatOpenAI(model="embedded-model", max_retries=0), [read_log], system_prompt="You read logs.")
answer = agent.invoke({"messages": [("user", sys.argv[1])]}, {"recursion_limit": 100})
print(answer["messages"][-1].content)
