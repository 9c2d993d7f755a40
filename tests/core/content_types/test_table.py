from __future__ import annotations

from support.made_files import (
    FILES,
)

from proxy.core.content_types.table import known, mime_by_name


def test_every_type_that_is_found_is_in_the_table():
    assert [mime for mime, _ in FILES.values() if known(mime) is None] == []
    for mime, _ in FILES.values():
        line = known(mime)
        assert mime_by_name(f"x.{line.suffix}") == mime
