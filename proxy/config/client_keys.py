"""The keys with which clients on this machine speak to the proxy, found where those clients look for them.

Rule: a key leads to its owner's artifacts only in the header in which that client sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VARIABLES: Final[Mapping[str, tuple[bytes, str]]] = {
    "OPENAI_API_KEY": (b"authorization", "Bearer {}"),
    "ANTHROPIC_API_KEY": (b"x-api-key", "{}"),
    "ANTHROPIC_AUTH_TOKEN": (b"authorization", "Bearer {}"),
    "AZURE_OPENAI_API_KEY": (b"api-key", "{}"),
}
"""Of the SDKs of OpenAI and Anthropic: the header that carries each, and how."""


def client_keys(environment: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers of these clients, one for each variable that is set.

    >>> client_keys({"OPENAI_API_KEY": "sk-a", "ANTHROPIC_API_KEY": "", "HOME": "/"})
    [(b'authorization', b'Bearer sk-a')]
    """
    return [
        (name, form.format(environment[variable]).encode())
        for variable, (name, form) in VARIABLES.items()
        if environment.get(variable)
    ]
