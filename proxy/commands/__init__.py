"""The larger commands, called by `proxy.__main__`, which reads their flags."""
