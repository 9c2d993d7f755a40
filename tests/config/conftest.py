"""Settings isolated from this machine's environment."""

import os

import pytest

from proxy.config import ENV_ALIASES


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith("CONTEXT_PROXY_") or name in ENV_ALIASES:
            monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path):
    def written(text):
        file = tmp_path / "config.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return written
