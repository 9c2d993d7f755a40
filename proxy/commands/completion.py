"""`context-proxy completion bash|zsh|fish`: a script that completes commands, flags and their values at TAB.

Rule: generated from the command line's parser, so it cannot drift from it, and run by the shell alone: completing
starts no Python.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

PROGRAM: Final = "context-proxy"
HOW_TO: Final[Mapping[str, str]] = {
    "bash": f"source <({PROGRAM} completion bash)",
    "zsh": f"source <({PROGRAM} completion zsh)",
    "fish": f"{PROGRAM} completion fish | source",
}
"""The line for a shell's startup file."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell; one of HOW_TO."""
    lines = _fish(parser) if shell == "fish" else _bash(parser, shell)
    return "\n".join([f"# For the startup file of {shell}: {HOW_TO[shell]}", *lines]) + "\n"


def _bash(parser: argparse.ArgumentParser, shell: str) -> Iterator[str]:
    """zsh runs bash's completions if told to."""
    if shell == "zsh":
        yield "autoload -Uz +X compinit bashcompinit && { (( $+functions[compdef] )) || compinit; } && bashcompinit"
    yield "_context_proxy() {"
    yield '    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path="" part i words=""'
    yield "    COMPREPLY=()"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield "        part=${COMP_WORDS[i]}"
    yield '        case "$path $part" in'
    yield f'            {"|".join(_quoted(f"{path} {name}") for path, name in _steps(parser))}) path="$path $part" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$path $before" in'
    for path, command in _commands(parser):
        for action in _flags(command):
            patterns = "|".join(_quoted(f"{path} {flag}") for flag in action.option_strings)
            if action.choices is not None:
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{_listed(action.choices)}" -- "$word")); return ;;'
            elif action.nargs != 0:
                kind = "-d" if action.metavar == "DIR" else "-f" if action.metavar == "FILE" else "-W ''"
                yield f'        {patterns}) COMPREPLY=($(compgen {kind} -- "$word")); return ;;'
    yield "    esac"
    yield '    case "$path" in'
    for path, command in _commands(parser):
        flags = [flag for action in _flags(command) for flag in action.option_strings if flag.startswith("--")]
        yield f'        {_quoted(path)}) words="{_listed([*_values(command), *flags])}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$word"))'
    files = "|".join(_quoted(path) for path, command in _commands(parser) if _takes_file(command))
    yield f'    case "$path" in {files}) COMPREPLY+=($(compgen -f -- "$word")) ;; esac'
    yield "}"
    yield f"complete -o filenames -F _context_proxy {PROGRAM}"


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"complete -c {PROGRAM} -f"
    for path, command in _commands(parser):
        steps = path.split()
        deeper = list(_subcommands(command))
        seen = [f"__fish_seen_subcommand_from {step}" for step in steps] or ["__fish_use_subcommand"]
        here = " && ".join(seen)
        above = here + (f" && not __fish_seen_subcommand_from {' '.join(deeper)}" if steps and deeper else "")
        for value in _values(command):
            told = f" -d {_quoted(_help_of(command, value))}" if _help_of(command, value) else ""
            yield f"complete -c {PROGRAM} -n {_quoted(above)} -a {_quoted(value)}{told}"
        if _takes_file(command):
            yield f"complete -c {PROGRAM} -n {_quoted(above)} -F"
        for action in _flags(command):
            names = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in action.option_strings
            )
            takes = ""
            if action.choices is not None:
                takes = f" -x -a {_quoted(_listed(action.choices))}"
            elif action.nargs != 0:
                takes = " -r -F" if action.metavar in ("FILE", "DIR") else " -x"
            yield f"complete -c {PROGRAM} -n {_quoted(here)} {names}{takes} -d {_quoted(_plain_help(action))}"


def _commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its path, such as ` artifacts ls`; the program itself has an empty one."""
    yield path, parser
    for name, command in _subcommands(parser).items():
        yield from _commands(command, f"{path} {name}")


def _steps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Each command's name, with the path before it."""
    for path, _ in _commands(parser):
        if path:
            before, _, name = path.rpartition(" ")
            yield before, name


def _subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def _flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _values(parser: argparse.ArgumentParser) -> list[str]:
    """The possible values: names of commands, or one of a few words."""
    words = [action.choices for action in parser._actions if not action.option_strings and action.choices is not None]
    return [str(word) for choices in words for word in choices]


def _takes_file(parser: argparse.ArgumentParser) -> bool:
    return any(action.metavar == "FILE" and not action.option_strings for action in parser._actions)


def _help_of(parser: argparse.ArgumentParser, name: str) -> str:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return next((_plain_help(choice) for choice in action._choices_actions if choice.dest == name), "")
    return ""


def _plain_help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _listed(words: object) -> str:
    assert isinstance(words, list | tuple | dict)
    return " ".join(str(word) for word in words)


def _quoted(text: str) -> str:
    return shlex.quote(text)
