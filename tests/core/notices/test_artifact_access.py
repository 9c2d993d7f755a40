from __future__ import annotations

import pytest

from proxy.core.artifact import Artifact
from proxy.core.notices.artifact_access import NOWHERE, ArtifactAccess

KEPT = Artifact(b"content", "sh")


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("/data/kept", f"/data/kept/{KEPT.id}"),
        ("/data/kept/", f"/data/kept/{KEPT.id}"),
        ("kept", f"kept/{KEPT.id}"),
        (r"C:\kept", rf"C:\kept\{KEPT.id}"),
        ("C:\\kept\\", rf"C:\kept\{KEPT.id}"),
        (r"\\host\share/kept", rf"\\host\share/kept/{KEPT.id}"),
    ],
)
def test_a_path_is_written_as_the_system_of_the_agent_writes_paths(folder, path):
    assert ArtifactAccess(folder).path_of(KEPT) == path


def test_what_is_not_known_of_a_client_is_not_named_to_it():
    assert (NOWHERE.path_of(KEPT), NOWHERE.url_of(KEPT)) == (None, None)
    assert ArtifactAccess(url="https://h/artifacts").url_of(KEPT) == f"https://h/artifacts/{KEPT.id}"
    assert ArtifactAccess(url="https://h/artifacts").path_of(KEPT) is None
