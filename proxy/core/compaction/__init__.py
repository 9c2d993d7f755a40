"""Compaction of conversations that exceed their room."""
