"""Does: sockets, files, clocks, logs. Decides nothing about messages."""
