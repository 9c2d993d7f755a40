"""What is given up when a conversation is over its room."""
