"""Resolves references in messages: images on the web, artifacts of earlier requests."""
