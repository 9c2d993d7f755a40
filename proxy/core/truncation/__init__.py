"""What becomes of one tool result, looked at by itself."""
