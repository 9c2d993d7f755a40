"""The pages of whoever runs the proxy, and who may see them."""
