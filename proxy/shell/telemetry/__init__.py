"""Log lines, metrics, traces, and the latest decisions."""
