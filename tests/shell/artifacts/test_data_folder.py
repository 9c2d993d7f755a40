"""What is looked after in the data folder while the proxy runs."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from proxy.shell.artifacts import data_folder
from proxy.shell.artifacts.data_folder import look_after
from proxy.shell.artifacts.tenants import Tenants
from proxy.shell.resources.whole_files import UNFINISHED, remove_unfinished


def test_what_a_killed_worker_left_behind_is_removed_and_nothing_else(tmp_path: Path) -> None:
    old = ["owner-secret.0123456789abcdef.unfinished", "learned.0123456789abcdef.unfinished"]
    others = ["owner-secret", "learned.json", "notes.unfinished", "x.0123.unfinished"]
    for name in (*old, *others):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (1_000, 1_000))
    fresh = tmp_path / "learned.fedcba9876543210.unfinished"
    fresh.write_text("another worker writes it")
    remove_unfinished(tmp_path, UNFINISHED, 2_000)
    assert {path.name for path in tmp_path.iterdir()} == {*others, fresh.name}


async def test_a_data_folder_is_looked_after_by_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "LOOK_SECONDS", 0.001)
    folder = tmp_path / "data"
    tenants = Tenants.of_folder(folder)
    left = folder / "learned.0123456789abcdef.unfinished"
    left.write_text("half")
    os.utime(left, (1_000, 1_000))
    looking = asyncio.create_task(look_after(folder, tenants))
    async with asyncio.timeout(20):
        while left.exists():  # noqa: ASYNC110 - nothing tells of a file
            await asyncio.sleep(0.001)
        shutil.rmtree(folder)
        while not (folder / "owner-secret").exists():  # noqa: ASYNC110 - nothing tells of a file
            await asyncio.sleep(0.001)
    looking.cancel()
