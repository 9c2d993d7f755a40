"""The upstream as seen from the proxy: the only place that knows its HTTP client."""
