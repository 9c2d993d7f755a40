"""Searching and paging in what was taken out."""
