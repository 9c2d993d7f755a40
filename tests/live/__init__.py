"""One package, so that the proxy that its tests share ends with them."""
