"""context-proxy: an OpenAI-compatible reverse proxy that fits every request into the model's context window."""

__version__ = "0.3.0.dev0"
