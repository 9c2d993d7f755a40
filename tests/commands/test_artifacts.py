"""`context-proxy artifacts`: the operator sees, reads and removes; nothing that a tool wrote steers the terminal."""

import asyncio
import io
import json
import os
import sys
import time
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.core.artifact import Artifact
from proxy.shell.artifacts import ArtifactStore, PrivateFolder

LOG = Artifact(b"".join(b"line %d\n" % number for number in range(1, 5_001)), "run\x1b[31m")
LISTING = Artifact(b'{"files": ["a", "b"]}', "ls", "json")
HOSTILE = Artifact(b"red: \x1b[31m\x07 \xe2\x80\xae \xff\n", "sh")


@pytest.fixture
def folder(tmp_path):
    folder = PrivateFolder(tmp_path / "data" / "tool-output")
    store = ArtifactStore(folder, retention_days=7, max_bytes=2**30)
    for tenant, artifact in (("anna", LOG), ("ben", LOG), ("ben", LISTING), ("anna", HOSTILE)):
        assert asyncio.run(store.keep([artifact], tenant)) == frozenset()
    asyncio.run(store.close())
    return folder


@pytest.fixture
def run(tmp_path, capfdbinary):
    def ran(*words):
        status = main(["artifacts", *words, "--data-dir", str(tmp_path / "data")])
        output = capfdbinary.readouterr()
        return status, output.out, output.err

    return ran


def test_what_is_kept_is_listed_the_last_used_first(folder, run):
    long_ago = time.time() - 3 * 24 * 3600
    for path in (Path(folder.address) / ".meta").glob(f"{LOG.id}.*"):
        os.utime(path, (long_ago, long_ago))
    os.utime(folder.place_of(LOG.id), (long_ago, long_ago))
    status, output, _ = run("ls")
    assert status == 0
    lines = output.decode().splitlines()
    assert lines[1].split() == ["total", "3"]
    assert lines[-1].split()[:2] == [LOG.id, str(len(LOG.content))]
    found = json.loads(run("ls", "--json", "--max", "1")[1])
    assert (found["total"], len(found["artifacts"])) == (3, 1)


def test_pages_searches_and_parts_are_shown(folder, run):
    assert run("show", LOG.id, "--lines", "7-8")[1].endswith(b"]\nline 7\nline 8\n")
    assert run("show", LOG.id, "--grep", "^line 4999$", "--context", "0")[1].endswith(b"]\n4999:line 4999\n")
    assert run("show", LISTING.id, "--json", "/files/1")[1].endswith(b"]\nb")
    assert json.loads(run("show", LOG.id, "--stat")[1])["lines"] == 5_000
    assert len(run("show", LOG.id)[1]) < 51_200
    assert run("show", LOG.id, "--whole")[1] == LOG.content


def test_what_goes_wrong_is_one_line_and_a_status(folder, run):
    for words, status in (
        (("show", "../../etc/passwd"), 1),
        (("show", LOG.id, "--lines", "0"), 2),
        (("show", LOG.id, "--lines", "9999-"), 1),
        (("show", LOG.id, "--context", "3"), 2),
        (("rm", "tool_x_0123456789abcdef.txt\x1b"), 1),
    ):
        found, output, problem = run(*words)
        assert (found, output) == (status, b"")
        assert len(problem.splitlines()) == 1
        assert b"\x1b" not in problem


def test_what_is_removed_is_gone_for_all_with_all_that_was_known_of_it(folder, run):
    assert run("rm", LOG.id, LISTING.id)[0] == 0
    assert {one.key.removeprefix(".meta/")[: len(HOSTILE.id)] for one in folder.listed()} == {HOSTILE.id}
    assert run("rm", LOG.id)[0] == 1


def test_an_empty_store_is_no_mistake(tmp_path, run):
    status, output, _ = run("ls")
    assert status == 0
    assert output.decode().split() == ["folder", str(tmp_path / "data" / "tool-output"), "total", "0", "bytes", "0"]
    assert run("rm", LOG.id)[0] == 1
    assert not (tmp_path / "data").exists()


def test_a_terminal_gets_no_control_characters_and_a_pipe_the_bytes(folder, run, monkeypatch, tmp_path):
    assert b"\x1b[31m\x07" in run("show", HOSTILE.id)[1]

    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    screen = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(screen))
    assert main(["artifacts", "show", HOSTILE.id, "--data-dir", str(tmp_path / "data")]) == 0
    shown = screen.getvalue().decode()
    assert "red: \ufffd[31m\ufffd \ufffd \ufffd\n" in shown
