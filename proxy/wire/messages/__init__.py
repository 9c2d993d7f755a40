"""Anthropic's Messages API, which other servers speak too: its requests, messages and responses."""
