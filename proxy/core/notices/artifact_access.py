"""The ways in which one client can get its artifacts: a path, an address, a tool.

Rule: a function of settings, of the request's tools and of how the client reaches the proxy, so it is the same in every
turn of a conversation. A way that is not known to work for this client is not named.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct


class Named(Protocol):
    """An artifact, or what refers to one."""

    @property
    def id(self) -> str:
        """Its name."""


class ArtifactAccess(Struct, frozen=True):
    """The available ways; nothing here comes from the request's text."""

    folder: str | None = None
    """The folder of the artifacts as the agent sees it; None: the agent does not see it."""
    url: str | None = None
    """Where they are served, without a slash at the end; None: it is unknown by which name the agent reaches us."""
    key_headers: tuple[str, ...] = ()
    """The beginnings of the headers that have to carry the agent's key there: `Authorization: Bearer`."""
    tool: bool = False
    """Whether the request is offered our own tool, `read_artifact`."""
    by_hash: bool = False
    """Whether a gateway fetches them for the agent, by their hash."""

    def path_of(self, artifact: Named) -> str | None:
        """The file, as the agent sees it.

        >>> from proxy.core.artifact import Artifact
        >>> ArtifactAccess("C:\\\\kept").path_of(Artifact(b"", "sh"))
        'C:\\\\kept\\\\tool_sh_e3b0c44298fc1c14.txt'
        """
        if self.folder is None:
            return None
        separator = "\\" if "\\" in self.folder and "/" not in self.folder else "/"
        return f"{self.folder.rstrip(separator)}{separator}{artifact.id}"

    def url_of(self, artifact: Named) -> str | None:
        """The address."""
        return None if self.url is None else f"{self.url}/{artifact.id}"


NOWHERE: Final = ArtifactAccess()
"""Nothing is known about the client."""
BY_HASH: Final = ArtifactAccess(by_hash=True)
"""Of the agent behind a gateway nothing is known but that the gateway asks by hash."""
