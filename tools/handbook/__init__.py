"""The generated part of docs/: the picture of the house, the table of its rooms, the pages of settings and API.

Rule: the top layer, beside the proxy's own commands; nothing in the proxy imports it.
"""
