"""Resolves references in messages: images on the web, artifacts of earlier requests."""

from proxy.shell.references.resolver import FAILURE_SECONDS, NOTE_SECONDS, FetchCache, Finding, Resolver

__all__ = ["FAILURE_SECONDS", "NOTE_SECONDS", "FetchCache", "Finding", "Resolver"]
