"""What the process has: threads, memory, its log."""
