"""What stands between a socket and the server's parser: bounds that the parser has none of."""
