"""How many real files get the right type? `python -m tools.bench.media_types FOLDER…`

A file's extension is taken as the truth. Empty files are left out, and source code, of which packages contain much.
Each file is examined twice: by its bytes alone, and with its name, declared as a wrong type. `--with-filetype` also
asks the package `filetype`, if it is installed.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from proxy.core.content_types import ContentKind, known, media_type, mime_by_name

TEXTS_TOLD_BY_BYTES = ("html", "htm", "xml", "json", "svg")
LEFT_OUT = (
    "application/octet-stream",
    "text/x-python",
    "text/x-c",
    "text/x-diff",
    "text/javascript",
    "application/x-sh",
)
LIES = ("image/png", "text/plain", "application/pdf")
Asked = Callable[[bytes, Path], str]


def files(folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """The type of each file by its extension; files whose extension means no type that we know are left out."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            mime = mime_by_name(path.name)
            if (
                known(mime)
                and mime not in LEFT_OUT
                and path.is_file()
                and not path.is_symlink()
                and path.stat().st_size
            ):
                yield mime, path


def by_bytes(content: bytes, _path: Path) -> str:
    return media_type(content).mime


def despite_a_lie(content: bytes, path: Path) -> str:
    truth = mime_by_name(path.name)
    return media_type(content, next(lie for lie in LIES if lie != truth), path.name).mime


def by_filetype(content: bytes, _path: Path) -> str:
    import filetype

    return mime_by_name(f"x.{filetype.guess_extension(content)}")


def right(truth: str, found: str) -> bool:
    """Texts look alike: except for a few kinds, bytes show only that something is a text."""
    line, found_line = known(truth), known(found)
    assert line is not None
    if line.kind is ContentKind.TEXT and line.suffix not in TEXTS_TOLD_BY_BYTES:
        return found_line is not None and found_line.kind is ContentKind.TEXT
    return truth == found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--with-filetype", action="store_true")
    parser.add_argument("--misses", action="store_true", help="name each file that is taken for something else")
    chosen = parser.parse_args()
    ways: dict[str, Asked] = {"bytes": by_bytes, "lie": despite_a_lie}
    if chosen.with_filetype:
        ways["filetype"] = by_filetype
    total: dict[str, int] = defaultdict(int)
    hits: dict[tuple[str, str], int] = defaultdict(int)
    for truth, path in files(chosen.folders):
        content = path.read_bytes()
        total[truth] += 1
        for way, detect in ways.items():
            found = detect(content, path)
            hits[truth, way] += right(truth, found)
            if chosen.misses and way != "filetype" and not right(truth, found):
                print(f"{way}: {path} is taken for {found}")
    print(f"{'type':<75}{'files':>6}", *(f"{way:>9}" for way in ways))
    for truth in sorted(total):
        print(f"{truth:<75}{total[truth]:>6}", *(f"{hits[truth, way]:>9}" for way in ways))
    count = sum(total.values())
    print(f"{'all':<75}{count:>6}", *(f"{sum(hits[truth, way] for truth in total) / count:>9.2%}" for way in ways))
    shares = [sum(hits[truth, way] / total[truth] for truth in total) / len(total) for way in ways]
    print(f"{'mean of the types':<75}{len(total):>6}", *(f"{share:>9.2%}" for share in shares))


if __name__ == "__main__":
    main()
