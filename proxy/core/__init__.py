"""Decides. Pure: no I/O, clock, randomness, async or logging; the same input always gives the same answer."""
