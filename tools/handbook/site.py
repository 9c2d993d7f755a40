"""The site's content besides docs/: the README as its first page, other pages outside docs/, files to download.

Rule: a hook of MkDocs, so it imports nothing of the proxy. Pages are written for the repository; here their links are
redirected to the site's copies, and a link to something that the site does not have fails the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = {
    "README.md": "index.md",
    ".github/SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    ".github/CONTRIBUTING.md": "contributing.md",
}
"""Pages outside docs/, and their paths on the site."""
DOWNLOADS: Final = ("config.example.yaml", "LICENSE", "deploy/**/*")
_LINK: Final = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<rest>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is outside docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - so that `linked` can be tested where there is no MkDocs

    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for pattern in DOWNLOADS:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite a page's links for the site."""
    written = {site: name for name, site in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return linked(markdown, written, page.file.src_uri)


def linked(markdown: str, written: str, site: str) -> str:
    """Links of the page `written` in the repository → links of the page `site` on the site.

    >>> linked("[a](docs/tls.md#b) [c](../d.yaml) [e](https://f)", "README.md", "index.md")
    '[a](tls.md#b) [c](../d.yaml) [e](https://f)'
    >>> linked("[a](../.github/SECURITY.md) [b](tls.md)", "docs/operations.md", "operations.md")
    '[a](security.md) [b](tls.md)'
    """

    def turned(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(written), found["path"]))
        target = PAGES.get(path, path.removeprefix("docs/"))
        return f"]({posixpath.relpath(target, posixpath.dirname(site) or '.')}{found['rest'] or ''})"

    return _LINK.sub(turned, markdown)
