"""Content taken out of requests, as artifacts."""

from proxy.shell.artifacts.access import AccessResolver, front_header, is_loopback
from proxy.shell.artifacts.folder import (
    COOLDOWN_SECONDS,
    META,
    TRIAL_KEY,
    TROUBLE,
    ArtifactFolder,
    Cooldown,
    NoAnswer,
    PrivateFolder,
    artifact_of,
    finding_key,
    index_key,
    is_artifact,
    metadata_key,
    reason_of,
    remove_all,
)
from proxy.shell.artifacts.places import create_folder, unwritable
from proxy.shell.artifacts.reader import ArtifactReader, ArtifactStat, Stored
from proxy.shell.artifacts.store import ArtifactStore, artifacts_in, sweep
from proxy.shell.artifacts.tenants import KEY_HEADERS, Tenants, create_tenants, look_after, with_secret
from proxy.shell.artifacts.tools import (
    ArtifactsByHash,
    ArtifactTools,
    Record,
    Replacements,
    TenantNames,
    ToolText,
    in_words,
)

__all__ = [
    "COOLDOWN_SECONDS",
    "KEY_HEADERS",
    "META",
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
    "TenantNames",
    "Tenants",
    "ToolText",
    "artifact_of",
    "artifacts_in",
    "create_folder",
    "create_tenants",
    "finding_key",
    "front_header",
    "in_words",
    "index_key",
    "is_artifact",
    "is_loopback",
    "look_after",
    "metadata_key",
    "reason_of",
    "remove_all",
    "sweep",
    "unwritable",
    "with_secret",
]
