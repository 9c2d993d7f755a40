"""HTTP/1.1 with clients: connections, bodies, comments that keep connections open."""
