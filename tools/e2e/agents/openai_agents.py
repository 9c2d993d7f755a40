"""An agent of openai-agents over the Responses API: `openai_agents.py MODE SCRIPT`.

`list`: the items are carried by the SDK inside one run; `session`: kept by it between runs; `previous`: by the server;
`truncated`: by the SDK, and the server may leave out the oldest ones; `streamed` and `image` are lists, too.
"""

import asyncio
import base64
import sys
from pathlib import Path

from agents import Agent, ModelSettings, Runner, SQLiteSession, ToolOutputImage, function_tool, set_tracing_disabled

set_tracing_disabled(True)


@function_tool
def read_log(path: str) -> str:
    """The whole of a log."""
    return Path(path).read_text()


@function_tool
def look(path: str) -> ToolOutputImage:
    """A picture."""
    return ToolOutputImage(image_url="data:image/png;base64," + base64.b64encode(Path(path).read_bytes()).decode())


async def main(mode: str, script: str) -> str:
    settings = ModelSettings(truncation="auto" if mode == "truncated" else None)
    tools = [look if mode == "image" else read_log]
    agent = Agent("logs", instructions="You read logs.", model="gpt-5.2", tools=tools, model_settings=settings)
    if mode == "streamed":
        running = Runner.run_streamed(agent, script, max_turns=100)
        async for _ in running.stream_events():
            pass
        return running.final_output
    if mode == "session":
        session = SQLiteSession("e2e")
        await Runner.run(agent, script, session=session, max_turns=100)
        return (await Runner.run(agent, "And in short?", session=session, max_turns=100)).final_output
    chained = mode == "previous"
    return (await Runner.run(agent, script, max_turns=100, auto_previous_response_id=chained)).final_output


print(asyncio.run(main(*sys.argv[1:3])))
