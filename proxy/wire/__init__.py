"""Translates between bytes and the core's types. Pure, like the core."""
