"""What was taken out of requests: where it is kept, and the ways back to it."""
