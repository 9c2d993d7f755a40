"""Searching and paging in artifacts."""
