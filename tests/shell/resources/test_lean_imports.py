"""What is left out of an import is left out only there, and only where the proxy does not use it."""

from __future__ import annotations

import importlib
import ssl
import subprocess
import sys

import pytest

from proxy.shell.resources.lean_imports import as_if_missing, without_certificates


def test_a_library_that_is_not_loaded_cannot_be_imported_inside_and_can_be_afterwards() -> None:
    name = "this"  # of the standard library, and imported by nobody
    sys.modules.pop(name, None)
    with as_if_missing(name), pytest.raises(ImportError):
        importlib.import_module(name)
    assert name not in sys.modules
    assert importlib.util.find_spec(name) is not None


def test_a_library_that_is_loaded_stays_so() -> None:
    with as_if_missing("ssl"):
        assert importlib.import_module("ssl") is ssl
    assert sys.modules["ssl"] is ssl


def test_a_context_made_inside_trusts_nobody_and_still_verifies() -> None:
    with without_certificates():
        context = ssl.create_default_context()
    assert context.cert_store_stats()["x509"] == 0
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_contexts_are_made_as_usual_afterwards_also_if_the_import_fails() -> None:
    usual = ssl.SSLContext.set_default_verify_paths
    with pytest.raises(ImportError), without_certificates():
        raise ImportError
    assert ssl.SSLContext.set_default_verify_paths is usual
    assert "set_default_verify_paths" not in vars(ssl.SSLContext)


def test_a_server_loads_no_colours_no_words_of_refusals_no_buckets_and_no_certificates() -> None:
    asked = (
        "import sys, proxy.__main__, proxy.server, aiohttp.connector as connector\n"
        "unwanted = {'rich', 'fastapi', 'proxy.core.overflow.words', 'tiktoken', 'httpx', 're2', 'obstore'}\n"
        "print(sorted(unwanted & {*sys.modules}), connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'])\n"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout == "[] 0\n"
