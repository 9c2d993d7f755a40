"""What the proxy says of itself: log lines, metrics, traces, the latest decisions."""
