"""Serves one request: plans, sends, judges, and retries."""
