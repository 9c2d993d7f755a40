"""HTTP/1.1 as clients speak it: connections, bodies, comments that keep them open."""
