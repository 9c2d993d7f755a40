import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from proxy import __main__, __version__
from proxy.config import Settings, load
from tools.handbook import reference

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOCKS = [ROOT / "requirements" / f"{name}.lock" for name in ("run", "dev", "image", "docs")]


def test_the_example_holds_the_defaults_and_nothing_else(monkeypatch):
    for name in ("UPSTREAM", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert load(ROOT / "config.example.yaml") == Settings()


COMMENTED_OUT = re.compile(r"^( *)#(?=\S|  )", re.MULTILINE)
"""A setting; a comment has one blank behind its sign."""


def test_the_blocks_of_the_example_that_are_commented_out_load(tmp_path, monkeypatch):
    for name in ("UPSTREAM", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    text = (ROOT / "config.example.yaml").read_text()
    blocks = re.findall(r"(?:^ *#(?:\S|  ).*\n)+", text, re.MULTILINE)
    assert [block.split(":")[0].strip() for block in blocks] == ["#upstreams", "#data_dir", "#models", "#tools"]
    for block in blocks:
        (tmp_path / "config.yaml").write_text(text.replace(block, COMMENTED_OUT.sub(r"\1", block)))
        assert load(tmp_path / "config.yaml") != Settings()
    (tmp_path / "config.yaml").write_text(COMMENTED_OUT.sub(r"\1", text))
    found = load(tmp_path / "config.yaml")
    assert [entry.match for entry in found.models] == ["qwen-vl*"]
    assert list(found.tool_output.tools) == ["Read"]
    assert set(yaml.safe_load((tmp_path / "config.yaml").read_text())) == set(Settings.model_fields)


def test_every_setting_has_its_docstring():
    docstrings = reference.settings_docstrings()
    silent = [
        f"{name}.{field}"
        for name, fields in docstrings.items()
        for field, info in getattr(getattr(reference.settings, name), "model_fields", {}).items()
        if field not in fields and reference.section_in(info.annotation) is not info.annotation
    ]
    assert silent == []


def test_the_version_is_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "proxy/__init__.py"
    assert metadata.version("context-proxy") == __version__
    elsewhere = [
        path.name
        for path in [*ROOT.glob("*.toml"), *ROOT.glob("*.yaml"), *(ROOT / "proxy").rglob("*.py"), *ROOT.glob("Make*")]
        if f'"{__version__}"' in path.read_text() and path != ROOT / "proxy" / "__init__.py"
    ]
    assert elsewhere == []


RELEASES = re.findall(r"^## (?:(Unreleased)|(\d+\.\d+\.\d+) – (\d{4}-\d{2}-\d{2}))$", CHANGELOG, re.MULTILINE)
NEWEST = next(release[1:] for release in RELEASES if release[1])
"""Version and date of the newest release."""


def test_the_changelog_begins_with_this_version():
    """A release is the first section; between releases the version is that of the next one, with `.dev0`."""
    assert len(RELEASES) == len(re.findall(r"^## ", CHANGELOG, re.MULTILINE))
    assert (__version__, RELEASES[0][0]) == (NEWEST[0], "") or (
        re.fullmatch(r"\d+\.\d+\.\d+\.dev0", __version__) and RELEASES[0][0] == "Unreleased"
    )


def test_the_documents_name_the_newest_release_and_no_other():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], str(citation["date-released"])) == NEWEST
    for path in (*DOCUMENTS, *(ROOT / "deploy").rglob("*.*"), *(ROOT / ".github").glob("*.md")):
        named = re.findall(r"context[-_]proxy(?:==|-|:|@v?)(\d+(?:\.\d+)+)", path.read_text())
        assert set(named) <= {NEWEST[0], NEWEST[0].rpartition(".")[0]}, path


def test_no_document_offers_a_release_that_is_not_published():
    """The comment in docs/install.md is the switch."""
    shown = {path.name: re.sub(r"<!--.*?-->", "", path.read_text(), flags=re.DOTALL) for path in DOCUMENTS}
    offers = [name for name, text in shown.items() if re.search(r"(?:uvx|pipx install|tool install) '?context-", text)]
    assert bool(offers) == ("install.md" in offers) == ("No release is on a package" not in shown["install.md"])


def targets():
    return set(re.findall(r"^([a-z][a-z0-9.]*):", MAKEFILE, re.MULTILINE))


def written_commands(command):
    """Arguments of a command in the documents: in code blocks at a line's start, or in backticks."""
    for path in DOCUMENTS:
        for line in re.findall(
            rf"(?:^\s*(?:\$ )?|`)(?:[A-Z_]+=\S+ )*{command} ([^`#\n]*)", path.read_text(), re.MULTILINE
        ):
            yield path.name, line.split()


def test_every_make_target_in_the_documents_exists():
    unknown = [
        (name, word)
        for name, words in written_commands("make")
        for word in words[:1]
        if re.fullmatch(r"[a-z0-9.]+", word) and word not in targets()
    ]
    assert unknown == []


def test_every_command_in_the_documents_is_one():
    parser = __main__._parser()
    wrong = []
    for name, words in written_commands("context-proxy"):
        if not words or not re.fullmatch(r"[a-z]+|--version|--help", words[0]):
            continue
        known = subprocess.list2cmdline(words)
        commands = next(action for action in parser._actions if action.dest == "==SUPPRESS==" or action.choices)
        flags = {word.split("=")[0] for word in words if word.startswith("--")}
        allowed = commands.choices.get(words[0]) if words[0].isalpha() else parser
        if allowed is None or not flags <= set(allowed._option_string_actions):
            wrong.append((name, known))
    assert wrong == []


def test_every_target_is_phony_or_a_file():
    phony = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    assert {target for target in targets() if "." not in target} == phony


def test_ci_calls_what_people_call():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make check", "make test"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_names_versions_and_hashes_and_no_place(lock):
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"^-|/", text, re.MULTILINE)
    pinned = re.findall(r"^([a-z0-9.-]+(?:\[[a-z,]+\])?)==\S+", text, re.MULTILINE)
    entries = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert len(pinned) == len(entries)
    assert all("--hash=sha256:" in entry for entry in entries)


def test_the_locks_agree_and_hold_every_requirement():
    run, dev, image = (
        dict(re.findall(r"^([a-z0-9.-]+)\S*==(\S+)", lock.read_text(), re.MULTILINE)) for lock in LOCKS[:3]
    )
    assert run.items() <= image.items() <= dev.items()

    def names(requirements):
        return {re.match(r"[A-Za-z0-9.-]+", requirement)[0].lower() for requirement in requirements}

    project = PROJECT["project"]
    assert names(project["dependencies"]) <= set(run), "make lock"
    assert names(PROJECT["dependency-groups"]["dev"]) <= set(dev), "make lock"
    extras = [names(project["optional-dependencies"][extra]) for extra in ("compression", "redis")]
    assert set(image) - set(run) == set().union(*extras) | {"async-timeout"}, (
        "a client may compress its bodies, replicas share what they learn, and no packages can be added to an image"
    )


def test_the_demo_is_a_small_install():
    """No extra, and few packages: who tries it waits for all of them."""
    assert len(re.findall(r"^[a-z].*==", LOCKS[0].read_text(), re.MULTILINE)) <= 44
    assert set(PROJECT["project"]["optional-dependencies"]) == {"compression", "mcp", "otel", "redis"}
    assert "requirements/run.lock" in re.search(r"^\.demo/made: (.*)$", MAKEFILE, re.MULTILINE)[1].split()


PACKAGES = {
    ".".join(init.parent.relative_to(ROOT).parts): ast.parse(init.read_text())
    for init in (ROOT / "proxy").rglob("__init__.py")
}
STOREYS = {"proxy", "proxy.commands", "proxy.core", "proxy.shell"}
"""They hold packages, and modules that are their own faces: a command loads no other one."""
LATE = {
    *("proxy.shell.artifacts.bucket", "proxy.shell.http.connection", "proxy.shell.models.shared_state"),
    *("proxy.shell.references.fetch", "proxy.shell.models.shared_state", "proxy.shell.telemetry.metrics"),
    "proxy.shell.telemetry.tracing",
}
"""They are their own faces, too: those of their packages do not load them, as they bring another library."""
PRIVATE_NAMES = {
    "commands/test_demo.py": 1,
    "config/test_settings.py": 1,
    "test_packaging.py": 1,
    "tools/test_build_hooks.py": 1,
}
"""Imports of private names in tests. It only shrinks."""
PAST_A_FACE = 52
"""The most imports in tests of what a package holds and does not offer. Lower it with each that goes."""


def offered(package):
    """The names in its `__all__`."""
    lists = [
        ast.literal_eval(node.value)
        for node in PACKAGES[package].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return set().union(*lists)


def imports_of_proxy():
    """Of each test: the module that a statement imports from, and the names."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "proxy":
                yield path, node.module, [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == "proxy":
                        yield path, alias.name, []


def is_past_a_face(module, names):
    if module in PACKAGES:
        inner = {name for name in names if (ROOT / module.replace(".", "/") / f"{name}.py").exists()}
        late = {name for name in inner if f"{module}.{name}" in LATE}
        return module not in STOREYS and not inner - late <= offered(module)
    return module not in LATE and module.rpartition(".")[0] not in STOREYS


def is_private(name):
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def test_no_test_imports_a_private_name():
    found = Counter(
        str(path.relative_to(ROOT / "tests"))
        for path, module, names in imports_of_proxy()
        for name in (*module.split("."), *names)
        if is_private(name)
    )
    assert found == PRIVATE_NAMES


def test_tests_import_from_the_faces_of_packages():
    """So that what is behind a face can be built anew."""
    past = [
        f"{path.relative_to(ROOT)}: {module}"
        for path, module, names in imports_of_proxy()
        if is_past_a_face(module, names)
    ]
    assert len(past) <= PAST_A_FACE, past


def test_the_faces_of_packages_do_not_load_what_is_late():
    faces = ", ".join(sorted({module.rpartition(".")[0] for module in LATE}))
    subprocess.run([sys.executable, "-c", f"import sys, {faces}; assert not {LATE!r} & {{*sys.modules}}"], check=True)


def test_each_package_has_tests():
    tried = {module if module in PACKAGES else module.rpartition(".")[0] for _, module, _ in imports_of_proxy()}
    holding_code = {package for package in PACKAGES if any((ROOT / package.replace(".", "/")).glob("[!_]*.py"))}
    assert holding_code - STOREYS - tried == set()
