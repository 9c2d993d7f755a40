"""The demo: a made-up incident, a model server with a small window, and an agent. Nothing in the proxy needs it."""
