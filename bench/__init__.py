"""What the proxy costs: CPU, time and memory, beside nginx as a reverse proxy on the same upstream and the same bodies.

Run it from the project's root with `python -m bench` (`--quick` for a minute's worth). The rule that holds here: a
figure comes only from answers that were checked whole, so an error never looks fast.
"""
