"""Modules that a start must not import: imports dominate its time, and stay in memory."""

import subprocess
import sys


def test_a_server_loads_nothing_that_only_some_requests_need():
    code = (
        "import sys, proxy.__main__, proxy.server\n"
        "unwanted = {'proxy.core.overflow.words', 'tiktoken', 'httpx', 're2', 'obstore'}\n"
        "print(sorted(unwanted & {*sys.modules}))\n"
    )
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert reported.stdout == "[]\n"


def test_a_start_reads_no_source_for_the_description_of_the_api():
    code = (
        "import linecache, proxy.server\n"
        "from proxy.shell.endpoints import create_api\n"
        "create_api()\n"
        "print([file for file in linecache.cache if '/proxy/' in file])\n"
    )
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert reported.stdout == "[]\n"
