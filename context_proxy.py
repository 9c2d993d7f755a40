"""The command `context-proxy`, outside the package `proxy`: proxy.py installs a package of that name over ours.

Rule: nothing here imports `proxy` before checking whose package that is. In one environment, the later of context-proxy
and https://github.com/abhinavsingh/proxy.py overwrites files of the other.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Final

OWN_MARK: Final = '"""context-proxy:'
"""How `proxy/__init__.py` of this project begins."""
OTHERS_FILE: Final = "proxy.py"
"""In the package of `proxy.py`, and in ours never."""
ADVICE: Final = "Give it an environment of its own: python3 -m venv, pipx, uv tool install, or its container."


def main() -> int:
    """Run the command line; the exit status."""
    if (problem := clash()) is not None:
        print(problem, file=sys.stderr)
        return 1
    from proxy.__main__ import main as run  # noqa: PLC0415 - only ours, as is known by now

    return run()


def clash() -> str | None:
    """Why `import proxy` would not load this project's package, whole; None when it would."""
    spec = importlib.util.find_spec("proxy")
    file = Path(spec.origin) if spec is not None and spec.origin is not None else None
    if file is None or not _begins_with_mark(file):
        found = f"leads to {file}" if file is not None else "finds nothing"
        return f"context-proxy cannot run: `import proxy` {found}, not to the package of context-proxy. {ADVICE}"
    if (file.parent / OTHERS_FILE).exists():
        return (
            "context-proxy cannot run: proxy.py is installed in the same environment, its package is called `proxy`, "
            f"too, and files of one have overwritten those of the other in {file.parent}. {ADVICE}"
        )
    return None


def _begins_with_mark(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.readline().startswith(OWN_MARK)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
