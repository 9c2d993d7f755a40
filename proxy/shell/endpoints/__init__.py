"""The proxy's endpoints, path by path."""
