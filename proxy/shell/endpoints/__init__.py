"""What the proxy answers, path by path."""
