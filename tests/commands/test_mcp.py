"""`context-proxy mcp` as an agent starts it: the SDK's own client speaks to the process."""

import os
import sys
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.commands import artifacts as command
from proxy.config import Settings
from proxy.core.artifact import Artifact
from proxy.shell.artifacts import ArtifactStore, PrivateFolder, Tenants

ROOT = Path(__file__).resolve().parents[2]
HEADERS = {
    "OPENAI_API_KEY": [(b"authorization", b"Bearer sk-mine")],
    "ANTHROPIC_API_KEY": [(b"x-api-key", b"sk-mine")],
    "": [],
    "another": [(b"authorization", b"Bearer sk-another")],
}
KEPT = {owner: Artifact(f"with the key {owner!r}\n".encode(), "Bash") for owner in HEADERS}


@pytest.fixture
async def data_dir(tmp_path):
    """A data folder with artifacts of four tenants."""
    tenants = Tenants.of_folder(tmp_path)
    store = ArtifactStore(PrivateFolder(tmp_path / "tool-output"), retention_days=7, max_bytes=2**30)
    for owner, artifact in KEPT.items():
        assert await store.keep([artifact], tenants.tenant_of(HEADERS[owner]).hex()) == frozenset()
    await store.close()
    return tmp_path


def started(data_dir, *flags, **environment):
    from mcp import Client, StdioServerParameters, stdio_client

    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return Client(
        stdio_client(
            StdioServerParameters(
                command=sys.executable,
                args=["-m", "proxy", "mcp", "--data-dir", str(data_dir), *flags],
                env={**kept, "PYTHONPATH": str(ROOT), **environment},
                cwd=str(ROOT),
            ),
            errlog=sys.__stderr__,  # its default is whatever stood there at the first import, say a test's capture
        )
    )


async def text_of(client, tool, **arguments):
    return str((await client.call_tool(tool, arguments)).content[0].text)


@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ([], [""]),
        (["OPENAI_API_KEY"], ["", "OPENAI_API_KEY"]),
        (["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], ["", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"]),
    ],
)
async def test_an_agent_finds_what_came_with_its_keys_and_without_one(data_dir, keys, seen):
    async with started(data_dir, **dict.fromkeys(keys, "sk-mine")) as client:
        listed = await text_of(client, "search_artifacts")
        assert {owner for owner, artifact in KEPT.items() if artifact.id in listed} == set(seen)
        page = await text_of(client, "read_artifact", id=KEPT[seen[-1]].id)
        assert KEPT[seen[-1]].content.decode() in page
        assert "another API key" in await text_of(client, "read_artifact", id=KEPT["another"].id)


async def test_what_is_open_on_this_machine_is_open_to_it(data_dir):
    async with started(data_dir, CONTEXT_PROXY_ARTIFACTS__OPEN_ON_LOOPBACK="true") as client:
        listed = await text_of(client, "search_artifacts")
    assert all(artifact.id in listed for artifact in KEPT.values())


def test_a_folder_that_is_not_there_is_not_made(tmp_path, capsys):
    assert main(["mcp", "--data-dir", str(tmp_path / "elsewhere")]) == 1
    assert "--data-dir names the folder of a proxy" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("proxy.commands.artifacts.find_spec", lambda _: None)
    assert command.serve_mcp(Settings(data_dir=tmp_path)) == 1
    assert "needs the extra `mcp`, which is not installed: docs/install.md#extras says how" in capsys.readouterr().err
