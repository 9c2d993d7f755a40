"""Where artifacts are kept: a local folder or a bucket, as the settings say."""

from __future__ import annotations

from pathlib import Path

from proxy.config import Settings
from proxy.shell.artifacts.folder import TRIAL_KEY, TROUBLE, ArtifactFolder, PrivateFolder, reason_of


def create_folder(settings: Settings) -> ArtifactFolder:
    """Where the artifacts are kept; nothing is created or requested yet."""
    scheme, _, path = (settings.artifacts.url or "").partition("://")
    if scheme and scheme != "file":
        from proxy.shell.artifacts.bucket import Bucket  # noqa: PLC0415 - 4 MB that a local folder does not need

        return Bucket(settings.artifacts.url or "")
    return PrivateFolder(Path(path) if scheme else settings.artifacts.folder or settings.data_dir / "tool-output")


def unwritable(settings: Settings) -> str | None:
    """Why nothing can be kept in the local folder, found by a trial write; None if it can, or if artifacts go into a
    bucket."""
    folder = create_folder(settings)
    if not isinstance(folder, PrivateFolder):
        return None
    try:
        folder.put(TRIAL_KEY, b"ok\n")
    except TROUBLE as error:
        where = f"{folder.address} (data_dir, or artifacts.url for another place)"
        return f"nothing can be kept in {where}: {reason_of(error)}"
    return None
