"""context-proxy: an OpenAI-compatible reverse proxy that fits every request into the model's context window."""

import os

ENVIRONMENT = dict(os.environ)
"""The environment before any module adds to it, for commands that are started from here."""
__version__ = "0.3.0.dev0"
