"""Texts: excerpts, lines, identifiers, JSON that keeps its bytes."""
