"""Resources of the process: threads, memory, its log."""
