"""Cost of the proxy: CPU, time and memory, compared with nginx as a reverse proxy on the same upstream and bodies.

Run it from the project's root: `python -m tools.bench` (`--quick` takes a minute and a half). Rule: figures come only
from responses that were checked in full, so an error never looks fast.
"""
