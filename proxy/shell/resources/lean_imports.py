"""Imports libraries without what they load for nothing: a start is mostly imports, and what they load stays.

Rule: only for the time of an import, and only what the proxy never uses; whoever needs it later imports it as usual.
"""

from __future__ import annotations

import contextlib
import ssl
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def as_if_missing(name: str) -> Iterator[None]:
    """Inside, an import of this library fails as if it were not installed, unless it is imported already: for libraries
    that load another one just in case."""
    is_hidden = name not in sys.modules
    if is_hidden:
        sys.modules[name] = None  # type: ignore[assignment] # https://docs.python.org/3/reference/import.html#the-module-cache
    try:
        yield
    finally:
        if is_hidden:
            del sys.modules[name]


@contextlib.contextmanager
def without_certificates() -> Iterator[None]:
    """A TLS context that is made inside trusts nobody: reading the system's certificates takes 20 ms and 800 KB for
    each. For libraries that make contexts at their import that the proxy replaces by its own."""
    ssl.SSLContext.set_default_verify_paths = _trust_nobody  # type: ignore[assignment, method-assign] # of a C class
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths  # the method of its base class is visible again


def _trust_nobody(_: ssl.SSLContext) -> None:
    """What takes the place of the method that reads the system's certificates."""
