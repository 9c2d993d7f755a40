"""The proxy, but replicas compare lessons ten times as often: `python -m tests.support.hasty_proxy serve …`.

Rule: nothing but this interval differs; a test whose subject it is runs the proxy itself.
"""

from __future__ import annotations

import sys

from proxy.__main__ import main
from proxy.shell.models import shared_state

shared_state.COMPARE_SECONDS /= 10

if __name__ == "__main__":
    sys.exit(main())
