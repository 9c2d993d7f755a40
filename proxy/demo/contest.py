"""The demo itself: one incident, one agent, twice; the second time its base URL is the proxy's.

Rule: both runs get the same model server, the same tools and the same code. Everything reported about them is taken
from their turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.demo.agent import Turn, investigate
from proxy.demo.detective import detective
from proxy.demo.incident import Incident, make_incident
from proxy.demo.model_server import create_model_server
from proxy.demo.refusals import Flavour
from proxy.demo.servers import proxy_in_front_of, serving
from proxy.demo.toolbox import Toolbox

TURNS_BESIDE_HOPS: Final = 4
"""The start, the source, the tests, the answer; each of the other turns reads one service's log."""
PATIENCE: Final = 3
"""An agent gives up after this many times the turns that the work takes if everything is visible."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one run went."""

    turns: tuple[Turn, ...]
    expected: str
    """The right answer."""

    @property
    def refusal(self) -> str:
        """The error that ended it, or nothing."""
        return self.turns[-1].refusal

    @property
    def solved(self) -> bool:
        """Whether it ended with the right answer."""
        return self.turns[-1].answer.endswith(self.expected)


@dataclass(frozen=True, slots=True)
class Brief:
    """The parameters of the demo."""

    window_tokens: int
    turns: int
    """Turns that the work takes if everything is visible."""
    seed: int
    flavour: Flavour
    port: int
    """The proxy's; 0 for any free one."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Both runs."""

    brief: Brief
    direct: Run
    proxied: Run
    proxy_url: str
    """Its base URL, which ends in `/v1`."""


Report = Callable[[str, Turn], None]
"""Called after each turn: ("direct" or "proxy", the turn)."""


@contextmanager
def hold_contest(brief: Brief, report: Report) -> Iterator[Contest]:
    """Start both servers and let the agent work twice; the servers run until the block ends. Raises CannotStart."""
    incident = make_incident(brief.turns - TURNS_BESIDE_HOPS, brief.seed)
    model = create_model_server(brief.window_tokens, brief.flavour, detective)
    with ExitStack() as stopped_at_the_end:
        enter = stopped_at_the_end.enter_context
        folder = Path(enter(tempfile.TemporaryDirectory(prefix="context-proxy-demo-")))
        model_url = enter(serving(model))
        proxy_url = enter(proxy_in_front_of(model_url, brief.window_tokens, folder, brief.port))
        toolbox = Toolbox(incident, folder)
        direct = _run(model_url, incident, toolbox, brief.turns, lambda turn: report("direct", turn))
        proxied = _run(proxy_url, incident, toolbox, brief.turns, lambda turn: report("proxy", turn))
        yield Contest(brief, direct, proxied, proxy_url)


def _run(base_url: str, incident: Incident, toolbox: Toolbox, turns: int, report: Callable[[Turn], None]) -> Run:
    return Run(investigate(base_url, incident.task, toolbox, PATIENCE * turns, report), str(incident.answer))
