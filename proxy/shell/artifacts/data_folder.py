"""Maintains the data folder while the proxy runs.

Rule: what other workers are writing at the same time is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Final

from proxy.shell.artifacts.tenants import Tenants
from proxy.shell.resources.whole_files import UNFINISHED, remove_unfinished

LOOK_SECONDS: Final = 2.0
"""Between two checks that the secret exists; a check is one stat."""
UNFINISHED_SECONDS: Final = 60.0
"""A half-written file older than this was left by a killed worker: writing one takes milliseconds."""


async def look_after(folder: Path, tenants: Tenants) -> None:
    """Keep the secret in the folder, and remove what killed workers have left behind; runs for ever."""
    sweep_at = 0.0
    while True:
        if time.monotonic() >= sweep_at:
            sweep_at = time.monotonic() + UNFINISHED_SECONDS
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove_unfinished, folder, UNFINISHED, time.time() - UNFINISHED_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(tenants.keep_secret)
