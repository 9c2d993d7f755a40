"""The comparison of HTTP clients behind docs/decisions/0001-http-client.md: `python -m tools.bench.http_clients`."""
