"""The larger commands; `proxy.__main__` reads their flags and calls them."""
