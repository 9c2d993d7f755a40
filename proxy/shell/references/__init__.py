"""Resolves references in messages: images on the web, artifacts of earlier requests."""

from proxy.shell.references.resolver import Downloads, FetchCache, Resolver

__all__ = [
    "Downloads",
    "FetchCache",
    "Resolver",
]
