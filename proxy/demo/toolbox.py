"""The agent's tools: their descriptions for the model, and what they do.

Rule: a tool call never makes the agent fail; the result says what could not be done. Real files are read in one folder
only, where a shortened output may be stored whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from proxy.demo.incident import Incident

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""A hundred times the largest output in this demo."""
MAX_MATCHES: Final = 200


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools over an incident, and over files in `readable_folder`."""

    incident: Incident
    readable_folder: Path

    def run(self, name: str, arguments: str) -> str:
        """The result of a call; `arguments` is JSON, as the model wrote it."""
        tools: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
            "list_files": lambda _: self._list_files(),
            "read_file": lambda given: self._read_file(str(given["path"])),
            "grep": lambda given: self._grep(str(given["pattern"]), str(given["path"])),
            "run_tests": lambda given: self._run_tests(str(given["service"])),
        }
        if name not in tools:
            return f"error: there is no tool {name}"
        try:
            return tools[name](json.loads(arguments))
        except (ValueError, TypeError, KeyError) as wrong:
            return f"error: these arguments do not fit {name}: {type(wrong).__name__}"

    def _list_files(self) -> str:
        return "\n".join(f"{len(text):8} {path}" for path, text in sorted(self.incident.files.items()))

    def _read_file(self, path: str) -> str:
        text = self._text(path)
        return f"error: no such file: {path}" if text is None else _headed(path, text.splitlines())

    def _grep(self, pattern: str, path: str) -> str:
        text = self._text(path)
        if text is None:
            return f"error: no such file: {path}"
        return _headed(f"{pattern!r} in {path}", [line for line in text.splitlines() if pattern in line][:MAX_MATCHES])

    def _run_tests(self, service: str) -> str:
        output = self.incident.test_output.get(service)
        return (
            f"error: {service} has no tests" if output is None else _headed(f"tests of {service}", output.splitlines())
        )

    def _text(self, path: str) -> str | None:
        if path in self.incident.files:
            return self.incident.files[path]
        real = Path(path).resolve()
        if not real.is_relative_to(self.readable_folder.resolve()) or not real.is_file():
            return None
        with real.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode(errors="replace")


def _headed(title: str, lines: list[str]) -> str:
    """The number of lines comes first, so that a reader knows if some are missing."""
    return "\n".join((f"# {title}: {len(lines)} lines", *lines))


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": meaning} for key, meaning in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters), "additionalProperties": False}
    function = {"name": name, "description": description, "parameters": schema, "strict": True}
    return {"type": "function", "function": function}


TOOLS: Final = (
    _tool("list_files", "All logs and sources, with their sizes in bytes."),
    _tool(
        "read_file", "The whole of a log, a source file, or a saved tool output.", path="as listed, or an absolute path"
    ),
    _tool("grep", "The lines of a file that hold a text.", pattern="plain text", path="as for read_file"),
    _tool("run_tests", "Runs the tests of a service; the output is long and is not kept.", service="its name"),
)
"""As sent with every request, in OpenAI's form."""
