"""The reduction of one tool result, looked at by itself."""
