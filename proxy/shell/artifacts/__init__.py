"""Content taken out of requests: where it is stored, and how clients get it back."""

from proxy.shell.artifacts.access import (
    KEY_HEADERS,
    OWNER_FILE,
    AccessResolver,
    create_folder,
    create_tenants,
    front_header,
    is_loopback,
    look_after,
    unwritable,
)
from proxy.shell.artifacts.folder import (
    META,
    TRIAL_KEY,
    TROUBLE,
    ArtifactFolder,
    Cooldown,
    NoAnswer,
    PrivateFolder,
    artifact_of,
    finding_key,
    is_artifact,
    reason_of,
    remove_all,
)
from proxy.shell.artifacts.reader import ArtifactReader, ArtifactStat, Stored
from proxy.shell.artifacts.store import ArtifactStore
from proxy.shell.artifacts.tools import ArtifactsByHash, ArtifactTools, Record, Replacements, ToolText

__all__ = [
    "KEY_HEADERS",
    "META",
    "OWNER_FILE",
    "TRIAL_KEY",
    "TROUBLE",
    "AccessResolver",
    "ArtifactFolder",
    "ArtifactReader",
    "ArtifactStat",
    "ArtifactStore",
    "ArtifactTools",
    "ArtifactsByHash",
    "Cooldown",
    "NoAnswer",
    "PrivateFolder",
    "Record",
    "Replacements",
    "Stored",
    "ToolText",
    "artifact_of",
    "create_folder",
    "create_tenants",
    "finding_key",
    "front_header",
    "is_artifact",
    "is_loopback",
    "look_after",
    "reason_of",
    "remove_all",
    "unwritable",
]
