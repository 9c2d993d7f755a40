"""What is given up when a conversation exceeds its room."""
