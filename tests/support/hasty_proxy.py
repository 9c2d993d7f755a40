"""The proxy, but replicas compare notes ten times as often: `python -m tests.support.hasty_proxy serve …`.

Rule: nothing but these intervals differs; a test whose subject they are runs the proxy itself.
"""

from __future__ import annotations

import sys

from proxy.__main__ import main
from proxy.shell.models import shared_state
from proxy.shell.telemetry import shared_decisions

shared_decisions.EXCHANGE_SECONDS /= 10
shared_state.COMPARE_SECONDS /= 10

if __name__ == "__main__":
    sys.exit(main())
