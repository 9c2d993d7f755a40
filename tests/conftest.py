"""For all tests; a process that runs some has `support/tests_process.py`, too."""

import atexit
import importlib
import os
import shutil
import sys
import tempfile

import pytest

# Who forbids bytecode has each worker compile 400 modules of tests anew, 4 s, and many a process that a test starts all
# of the proxy. It goes where it goes for everybody else, into `__pycache__`.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test, and no process that one starts, writes to the user's own folder of data. The workers inherit it.
if "TESTS_OF_CONTEXT_PROXY" not in os.environ:
    os.environ["TESTS_OF_CONTEXT_PROXY"] = "1"
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="context-proxy-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)


def pytest_sessionstart(session):
    """The controller that distributes tests skips the workers' imports, which saves 35 MB."""
    plugins = session.config.pluginmanager
    if not plugins.hasplugin("dsession"):
        plugins.register(importlib.import_module("support.tests_process"))


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report, config):
    """pytest keeps the reports of a test's setup, call and teardown until the end: 60 MB in all. Of what passed, only
    `--durations` reads more than how many calls there were."""
    if not report.passed or config.getoption("durations"):
        return
    report.sections = []
    if isinstance(report, pytest.TestReport):
        report.keywords = {}
        report.user_properties = []
    config.pluginmanager.get_plugin("terminalreporter").stats.get("", []).clear()
