"""The proxy's own tool, and the calls of it that no client sees."""
