from __future__ import annotations

import errno
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.artifact import Artifact
from proxy.shell.artifacts.folder import (
    META,
    artifact_of,
    finding_key,
    index_key,
    is_artifact,
    metadata_key,
    reason_of,
)

NAMES = st.builds(lambda content, tool: Artifact(content, tool).id, st.binary(max_size=9), st.text(max_size=60))
TENANTS = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=64)
NAME = Artifact(b"content", "sh").id


@given(NAMES, TENANTS)
def test_every_object_of_an_artifact_tells_which_one_it_belongs_to(name, tenant):
    assert is_artifact(name)
    assert artifact_of(name) == (name, True)
    assert artifact_of(metadata_key(name, tenant)) == (name, False)
    assert artifact_of(index_key(name)) == (name, False)


@given(st.binary(min_size=32, max_size=32), TENANTS)
def test_what_became_of_an_address_has_a_key_that_holds_no_address(digest, tenant):
    key = finding_key(digest.hex(), tenant)
    assert artifact_of(key) == (f"url_{digest.hex()[:32]}", False)


@pytest.mark.parametrize(
    ("name", "tenant"),
    [
        ("../../etc/passwd", "5eed"),
        (f"{NAME}/..", "5eed"),
        (NAME, ""),
        (NAME, "../5eed"),
        (NAME, "a" * 65),
        (f"{NAME}\n", "5eed"),
        ("", "5eed"),
    ],
)
def test_nothing_but_the_name_of_an_artifact_and_a_tenant_makes_a_key(name, tenant):
    with pytest.raises(ValueError, match="not the name of an artifact"):
        metadata_key(name, tenant)


def test_nothing_but_the_hash_of_an_address_makes_the_key_of_a_finding():
    with pytest.raises(ValueError, match="not the hash"):
        finding_key("https://h/a.png", "5eed")


@pytest.mark.parametrize(
    "key", ["notes.txt", f"{META}/notes", f"{META}/trial", f"sub/{NAME}", f"{NAME}.bak", "", f"{META}/{NAME}"]
)
def test_the_object_of_a_stranger_belongs_to_no_artifact(key):
    assert artifact_of(key) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "SECRET"), "No space left on device"),
        (RuntimeError("Generic error: SECRET (os error 13)"), "Permission denied"),
        (RuntimeError("Client error with status code: 403 Forbidden: SECRET"), "RuntimeError (403 Forbidden)"),
        (ValueError("SECRET"), "ValueError"),
        (TimeoutError("SECRET"), "no answer in time"),
    ],
)
def test_a_failure_is_told_in_the_words_of_the_system_and_never_in_its_own(error, reason):
    assert reason_of(error) == reason
