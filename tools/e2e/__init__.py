"""Real clients and coding agents, headless, on the same work twice: directly, and through the proxy. `make e2e`."""
