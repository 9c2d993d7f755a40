"""The upstream as seen from the proxy: the only package that knows its HTTP client."""
