"""`python -m tools.e2e [CLIENT…]`: installs the clients, lets each work twice, and prints how it went.

Rule: both runs differ in the base URL alone; clients of chat completions get it from `context-proxy run`. A run ends
well when the client shows the model's last words; the exit status is 0 when every client is refused directly, whatever
becomes of it then, and all end well through the proxy (those of the two other APIs: tools/e2e/wire_runs.py; the known
agents: tools/e2e/conversations.py), and when the first request and the least window of each agent are as its table
says (tools/e2e/captures.py, measures.py). What a registry does not deliver is skipped, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from support.upstream import listening, model_server

from proxy.commands.run import LOG_NAME
from tools.defects import HasDefect, raise_defects
from tools.e2e import captures, conversations, measures, ollama_runs, wire_runs
from tools.e2e.clients import CLIENTS, LOGS, MODEL, Client, NotDelivered, end_all_at
from tools.e2e.ollama_runs import OLLAMA_CLIENTS, WINDOWS, OllamaClient
from tools.e2e.wire_clients import WIRE_CLIENTS, WireClient

WINDOW_TOKENS: Final = 40_000
"""A third of what the logs take; the agents' own system prompts and tools take up to 8 000."""
LINES: Final = 1_500
MOST_SECONDS: Final = 180
T = TypeVar("T", Client, WireClient, OllamaClient)


@dataclass(frozen=True, slots=True)
class Run:
    """How one run ended."""

    well: bool
    seconds: float
    last_words: str


def work(client: Client, base_url: str, before: Sequence[str] = ()) -> Run:
    """One run in a folder and a home of its own; `before`: what stands before its command."""
    with tempfile.TemporaryDirectory(prefix="context-proxy-e2e-") as place:
        folder, home = Path(place, "work"), Path(place, "home")
        folder.mkdir()
        home.mkdir()
        for number in range(LOGS):
            lines = (f"build {number} line {line}: {line * 7919 % 10007} took {line} ms\n" for line in range(LINES))
            (folder / f"log-{number}.txt").write_text("".join(lines))
        begun = time.monotonic()
        try:
            output = subprocess.run(
                [*before, *client.command(client.script)],
                cwd=folder,
                env=environment(home, base_url),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=MOST_SECONDS,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired:
            output = f"no end after {MOST_SECONDS} s"
        finally:
            end_all_at(home)
        return Run(client.ending in output, time.monotonic() - begun, complaint(output))


def environment(home: Path, base_url: str) -> dict[str, str]:
    """A base URL, a key and a model, without the variables of the user who runs this."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": "sk-e2e",
        "OPENAI_MODEL": MODEL,
        "GPTME_DISABLE_PATH_INCLUDE": "1",  # else the script's files are part of the prompt
        "GPTME_TIKTOKEN_TIMEOUT": "0",  # it fetches a tokenizer otherwise, and waits for it
    }


def complaint(output: str) -> str:
    """The client's report of the model's refusal, shortened; else its last line."""
    if telling := re.search(r"maximum context length is \d+ tokens|has hit a token limit", output):
        return telling[0]
    return output.strip().rpartition("\n")[2][:100]


def in_short(run: Run, refusals: int = 0) -> str:
    """A cell of the table; `refusals`: those that the client has seen."""
    if not run.well:
        return f"[red]died[/]: {run.last_words}"
    how = f"[yellow]ended well after {refusals} refusals[/]" if refusals else "[green]ended well[/]"
    return f"{how}, {run.seconds:.0f} s"


def request_log(log: Path) -> list[dict[str, object]]:
    """The proxy's report about its requests so far."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if '"request_done"' in line]
    return [line for line in lines if line["status"] == 200]


def main(names: list[str]) -> int:
    """0 when it went as it should."""
    console = Console(width=max(160, Console().width))
    table = Table("client", "directly", "through the proxy", "what reached the model", show_lines=True)
    failed = chat_rows(names, console, table) + wire_rows(names, console, table) + ollama_rows(names, console, table)
    console.print(table)
    failed += conversations.main(names) + captures.main(names) + measures.too_small(names)
    return 1 if failed else 0


def delivered(clients: Sequence[T], names: list[str], console: Console, table: Table) -> Iterator[T]:
    """The clients whose names begin with one of these, or all, each once it is installed; a row for one that is not."""
    for client in clients:
        if names and not client.name.startswith(tuple(names)):
            continue
        console.print(f"{client.name} …", style="dim")
        try:
            client.install()
        except NotDelivered as reason:
            table.add_row(client.name, f"[yellow]skipped[/]: {escape(str(reason))}")
        else:
            yield client


def chat_rows(names: list[str], console: Console, table: Table) -> int:
    """The clients of chat completions; returns how many rows are not as they should be."""
    failed = 0
    upstream = model_server(WINDOW_TOKENS)
    with (
        tempfile.TemporaryDirectory(prefix="context-proxy-e2e-") as kept,
        listening(upstream) as model,
    ):
        for client in delivered(CLIENTS, names, console, table):
            folder = Path(kept, client.name)
            folder.mkdir()
            upstream.sent.clear()
            direct, refusals = work(client, model), upstream.refusals
            upstream.sent.clear()
            flags = ["--upstream", model, "--context-window", str(WINDOW_TOKENS), "--data-dir", str(folder)]
            proxied = work(client, model, [sys.executable, "-m", "proxy", "run", *flags, "--"])
            try:
                raise_defects((folder / LOG_NAME).read_text())
            except HasDefect as error:
                proxied = Run(well=False, seconds=0.0, last_words=escape(str(error)))
            requests = request_log(folder / LOG_NAME)
            largest = max(requests, key=lambda line: int(str(line["tokens_before"])), default={})
            table.add_row(
                client.name,
                in_short(direct, refusals),
                in_short(proxied),
                f"{len(requests)} requests, {upstream.refusals} refused; window {WINDOW_TOKENS}, "
                f"the largest {largest.get('tokens_before')} tokens, sent as {largest.get('tokens_after')}",
            )
            failed += not refusals or not proxied.well
    return failed


def wire_rows(names: list[str], console: Console, table: Table) -> int:
    """The clients of the Messages and the Responses API; returns how many rows are not as they should be."""
    failed = 0
    for client in delivered(WIRE_CLIENTS, names, console, table):
        direct = asyncio.run(wire_runs.work(client, proxied=False))
        proxied = asyncio.run(wire_runs.work(client, proxied=True))
        table.add_row(f"{client.name}; refused as: {client.refusal}", direct.directly, proxied.proxied, proxied.sends)
        failed += not direct.proves_something or bool(proxied.faults)
    return failed


def ollama_rows(names: list[str], console: Console, table: Table) -> int:
    """The clients of Ollama's own API; returns how many rows are not as they should be."""
    failed = 0
    for client in delivered(OLLAMA_CLIENTS, names, console, table):
        for window in WINDOWS:
            direct, proxied = (ollama_runs.work(client, window, proxied=through) for through in (False, True))
            largest = max((chat.prompt_tokens for chat in proxied.model.chats), default=0)
            reached = f"window {window}, largest {largest}; loaded {len(proxied.model.loads)} times"
            table.add_row(f"{client.name}, {window}", escape(direct.reported), escape(proxied.reported), reached)
            failed += not direct.cuts or not proxied.is_right
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
