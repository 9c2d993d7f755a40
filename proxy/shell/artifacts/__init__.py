"""Content taken out of requests: where it is stored, and how clients get it back."""
