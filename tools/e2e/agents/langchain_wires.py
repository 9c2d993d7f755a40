"""LangChain's agent over the two newer APIs: `langchain_wires.py messages|responses SCRIPT`."""

import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def read_log(path: str) -> str:
    """The whole of a log."""
    return Path(path).read_text()


MODELS = {
    "messages": lambda: ChatAnthropic(model="claude-sonnet-4-6", max_tokens=4_000, max_retries=0),
    "responses": lambda: ChatOpenAI(model="gpt-5.2", use_responses_api=True, max_retries=0),
}
agent = create_agent(MODELS[sys.argv[1]](), [read_log], system_prompt="You read logs.")
answer = agent.invoke({"messages": [("user", sys.argv[2])]}, {"recursion_limit": 100})
print(answer["messages"][-1].text)
