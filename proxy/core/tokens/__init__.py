"""What a text or an image costs in tokens."""
