"""What can go wrong around the proxy, tried on a running one: `make faults` writes docs/reliability.md.

Rule: every trial says what was tried, how often, and what was lost; nothing is claimed that was not run.
"""
