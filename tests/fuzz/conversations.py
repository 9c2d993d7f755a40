"""Growing conversations of agents: settings, features and upstreams at once, as `drawn` has them."""

from __future__ import annotations

from typing import Final

import msgspec
from drawn.case import drawn
from hypothesis import strategies as st

CASES: Final = st.randoms(use_true_random=False).map(lambda numbers: msgspec.json.encode(drawn(numbers)))
