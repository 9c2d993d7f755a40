"""Anthropic's Messages API: requests, messages and answers as it has them, and all who speak it."""
