"""The operator's pages, and who may open them."""
