"""The larger commands: check, doctor, completion. `proxy.__main__` reads their flags and calls them."""
