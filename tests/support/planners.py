"""A planner of its own for each test, and long runs for it to plan."""

from __future__ import annotations

import json

from proxy.config import Settings
from proxy.core.models import ModelProfile
from proxy.shell.planning import Pipelines, Planner
from support.strategies import exchange, system, user

TENANT = b"owner"
TOOLS = [{"type": "function", "function": {"name": "run_command", "parameters": {}}}]


class Models:
    """What is known of the models of an upstream."""

    def __init__(self, profile, ratio=(1.0, False), settle=None):
        self.profile = profile
        self.ratio = lambda *_: ratio
        self._settle = settle

    async def settle(self, model, tenant, *, is_cut):
        return self._settle is not None and await self._settle(model, tenant, is_cut=is_cut)


def planner(window=8_000, *, ratio=(1.0, False), tokenizer="bytes", **settings) -> Planner:
    return Planner(
        Pipelines(Settings(**settings)),
        Models(lambda model, _: ModelProfile(model, window, tokenizer=tokenizer), ratio),
    )


def body(messages, **members) -> bytes:
    return json.dumps({"model": "m", "messages": messages, "tools": TOOLS, **members}).encode()


def run(count, size=60):
    history = [system(), user("one task")]
    for number in range(count):
        history += exchange([f"line {number:04}\n" * size], first_call=number)
    return history
