"""From the bytes of a request to what is sent in its place, and what is remembered of the request."""
