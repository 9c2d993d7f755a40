"""Translates between bytes and the core's words. Pure, too."""
