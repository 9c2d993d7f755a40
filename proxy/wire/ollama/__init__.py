"""Ollama's own API: chats and prompts, answered by lines of JSON."""
