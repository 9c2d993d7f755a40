"""What docs/ has that no person writes: the picture of the house, the table of its rooms, the page of settings.

Rule: the top layer, beside the proxy's own commands; nothing in the proxy knows of it.
"""
