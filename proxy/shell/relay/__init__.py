"""The journey of one request."""
