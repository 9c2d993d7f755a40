"""The larger commands: check, doctor, mcp. `proxy.__main__` reads their flags and calls them."""
