"""Faults around the proxy, tried on a running one: `make faults` writes docs/reliability.md.

Rule: every trial says what was tried, how often, and what was lost; it claims nothing that was not run.
"""
