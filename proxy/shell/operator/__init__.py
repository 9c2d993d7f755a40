"""The operator's pages, and who may see them."""
