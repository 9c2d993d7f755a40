"""From the upstream's answer to the client's: held until it is judged, and read for calls of our own tool."""
