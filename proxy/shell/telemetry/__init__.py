"""What the proxy reports: log lines, metrics, traces, the latest decisions."""
