"""What the proxy takes from libraries is public, and any of their releases within a major version will do."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import tomllib
from pathlib import Path

import proxy

ROOT = Path(__file__).parents[1]
SOURCES = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "proxy").rglob("*.py"))}
REQUIREMENTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = ("proxy", *sys.stdlib_module_names)
DOCUMENTED = {"_exit", "_replace", "_asdict", "_fields", "_value_"}
"""Public parts of Python that begin so: `os`, named tuples, enumerations."""
OF_PYTHON = {"_abc_impl", "_is_protocol"}
"""What its own classes add to ours."""


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def place(path, node):
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def own_names():
    """Everything that our own code defines: functions, classes, fields, variables, attributes of `self`."""
    for tree in SOURCES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value  # of `__slots__`


def test_no_private_name_of_a_library_is_imported():
    found = {
        f"{path.relative_to(ROOT)}: {module}"
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        for module in (
            [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom) and node.module
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        if module.partition(".")[0] not in OWN and any(map(is_private, module.split(".")))
    }
    assert not found


def test_no_private_attribute_is_used_that_our_own_code_does_not_define():
    ours = set(own_names())
    found = {
        f"{place(path, node)}: {node.attr}"
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in ours | DOCUMENTED
    }
    assert not found


def classes_on_libraries():
    """Our classes that extend a library's, each with its libraries' part of its ancestors."""
    for module in pkgutil.walk_packages(proxy.__path__, "proxy."):
        if module.name.endswith("__main__"):
            continue
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name:
                theirs = [base for base in found.__mro__ if base.__module__.partition(".")[0] not in OWN]
                if theirs:
                    yield found, theirs


def private_names(kind):
    """What a class defines, and what it keeps in its objects."""
    try:
        kept = re.findall(r"\bself\.(_\w+)", inspect.getsource(kind))
    except (OSError, TypeError):  # it is compiled
        kept = []
    return {name for name in (*vars(kind), *kept) if is_private(name)} - OF_PYTHON


def test_no_private_name_of_a_library_is_overridden():
    found = {
        f"{ours.__module__}.{ours.__qualname__}.{name}"
        for ours, theirs in classes_on_libraries()
        for name in private_names(ours) & set().union(*map(private_names, theirs))
    }
    assert not found


def test_no_requirement_excludes_less_than_a_major_version():
    groups = [REQUIREMENTS["dependencies"], *REQUIREMENTS["optional-dependencies"].values()]
    found = {
        requirement
        for requirement in (one.partition(";")[0] for group in groups for one in group)
        if re.search(r"==|~=|!=|<(?!\d+$)", requirement.replace(" ", ""))
    }
    assert not found
