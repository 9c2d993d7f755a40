"""The command line: `run`, `env`, `serve`, `status`, `init`, `check`, `doctor`, `demo`, `explain`, `models`, others.

Rule: `python -m proxy` is the same as `context-proxy`; each command imports what it needs, so that none waits for
another's imports.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from proxy import __version__
from proxy.config import WIRE_PATHS, Settings, SettingsError, load, meant

NOT_ON_WINDOWS: Final = (
    "context-proxy runs on Linux and macOS: Windows lacks its file locks and shared ports. "
    "On Windows run it in WSL (https://learn.microsoft.com/windows/wsl/) or in its container."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status: 0 success, 1 failure, 2 invalid flags, settings or input."""
    if sys.platform == "win32":
        print(NOT_ON_WINDOWS, file=sys.stderr)
        return 1
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: some terminals lack an arrow or a dash
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        close = meant(unknown[0].partition("=")[0], [f"--{name.replace('_', '-')}" for name in vars(options)])
        _parser().error(f"unrecognized arguments: {' '.join(unknown)}{close}")
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has seen enough, as `head` does; the rest must not fail at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _serve(options: argparse.Namespace) -> int:
    # What is loaded stays, and collecting it as garbage would take a tenth of the start; the application turns it on.
    gc.disable()
    from proxy.server import serve  # noqa: PLC0415 - the other commands start without a server

    flags = _flags(options)
    return serve(load(options.config, flags), partial(load, options.config, flags), options.until_closed)


def _doctor(options: argparse.Namespace) -> int:
    from proxy.commands.doctor import doctor  # noqa: PLC0415 - for this command alone

    settings, agent = _settings(options), None
    if options.agent is not None:
        from proxy.commands.agents import agent_named  # noqa: PLC0415 - as above
        from proxy.commands.wiring import NoUpstream, upstream_of  # noqa: PLC0415 - as above

        if (agent := agent_named(options.agent)) is None:
            print(f"{options.agent} is not known: docs/agents.md lists what is", file=sys.stderr)
            return 2
        try:
            base_url = upstream_of(agent, settings, os.environ).base_url
        except NoUpstream as error:
            print(error, file=sys.stderr)
            return 2
        upstream = settings.upstream.model_copy(update={"base_url": base_url})
        settings = settings.model_copy(update={"upstream": upstream})
    api = options.api or (None if agent is None or agent.api == "chat_completions" else agent.api)
    return doctor(settings, options.model, api=api, agent=agent)


def _models(options: argparse.Namespace) -> int:
    from proxy.commands.models import forget_models, models  # noqa: PLC0415 - for this command alone

    if not options.forget and not options.all:
        return models(_settings(options), options.name, as_json=options.json)
    if not options.forget or (options.name is None) != options.all:
        print("--forget takes the name of a model, or --all for everything that upstreams have taught", file=sys.stderr)
        return 2
    return forget_models(_settings(options), options.name)


def _of(name: str) -> Any:
    """A module of commands, which is imported when one of them runs."""
    return importlib.import_module(f"proxy.commands.{name}")


def _settings(options: argparse.Namespace) -> Settings:
    return load(options.config, _flags(options))


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """The flags' values, nested like the YAML."""
    flags: dict[str, Any] = {}
    for section, key, given in (
        ("upstream", "base_url", options.upstream),
        ("server", "host", getattr(options, "host", None)),
        ("server", "port", getattr(options, "port", None)),
        ("server", "workers", getattr(options, "workers", None)),
        ("defaults", "context_window", options.context_window),
    ):
        if given is not None:
            flags.setdefault(section, {})[key] = given
    if options.data_dir is not None:
        flags["data_dir"] = options.data_dir
    return flags


class _Parser(argparse.ArgumentParser):
    """Suggests the command that was probably meant, which argparse itself does from Python 3.14 on."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        close = meant(wrong[1], re.findall(r"[\w.-]+", wrong[2])) if wrong else ""
        super().error(message + close)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="context-proxy", description="Fits chat requests into the model's context window.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for one in _COMMANDS:
        command = commands.add_parser(one.name, help=one.does)
        for add in one.flags:
            add(command)
        command.set_defaults(run=one.run)
    return parser


def _add_until_closed(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--until-closed", type=int, metavar="FD", help=argparse.SUPPRESS)  # of `run`


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("--port", help="port to listen on (default: any free one)")
    run.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="AGENT-OR-COMMAND [ARGS...]", help="`--` may stand before it"
    )


def _add_env(env: argparse.ArgumentParser) -> None:
    env.add_argument("agent", metavar="AGENT", help="its name or its command")
    forms = env.add_mutually_exclusive_group()
    for form in ("fish", "powershell", "json"):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=f"for {form}")
    env.add_argument("--off", action="store_true", help="print the lines that undo it")
    env.set_defaults(form="posix")


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--model", metavar="NAME", help="model to test (default: the first one listed)")
    doctor.add_argument("--agent", metavar="AGENT", help="agent that is to work with it: whether its tools fit as well")
    doctor.add_argument("--api", choices=WIRE_PATHS, help="API to test (default: chat_completions)")


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("file", metavar="FILE", help="request body as JSON; - reads standard input")
    explain.add_argument("--model", metavar="NAME", help="plan for this model instead of the one in the body")
    forms = explain.add_mutually_exclusive_group()
    forms.add_argument("--diff", action="store_true", help="show each changed message, before and after side by side")
    forms.add_argument("--json", action="store_true", help="print JSON")


def _add_models(models: argparse.ArgumentParser) -> None:
    models.add_argument("name", nargs="?", metavar="NAME", help="model to show (default: all that are known)")
    models.add_argument("--forget", action="store_true", help="forget what was learned about NAME from its upstreams")
    models.add_argument("--all", action="store_true", help="with --forget: forget what was learned about all models")


def _add_artifacts(command: argparse.ArgumentParser) -> None:
    what = command.add_subparsers(required=True, metavar="ls|show|rm", dest="do")

    listing = what.add_parser("ls", help="list artifacts, most recently used first")
    listing.add_argument(
        "--max", metavar="N", type=_between(1, 10**9), default=50, help="show at most this many (default 50)"
    )
    listing.add_argument("--json", action="store_true", help="print JSON")

    show = what.add_parser("show", help="show a page of an artifact")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--lines", metavar="RANGE", help="lines to show: 400-480, 400-, or -80 for the last 80")
    show.add_argument("--grep", metavar="REGEX", help="show only lines that match")
    show.add_argument("--context", metavar="N", help="lines around each match (default 2)")
    show.add_argument("--json", metavar="POINTER", help="part of a JSON artifact, such as /messages/3/content")
    show.add_argument("--stat", action="store_true", help="show its size and type only")
    show.add_argument("--whole", action="store_true", help="print all of it, byte for byte")

    remove = what.add_parser("rm", help="remove artifacts, for every key that may read them")
    remove.add_argument("names", metavar="NAME", nargs="+")

    for one in (listing, show, remove):
        _add_settings_flags(one)


def _add_demo(demo: argparse.ArgumentParser) -> None:
    flag = demo.add_argument
    flag(
        "--window",
        type=_between(4_000, 200_000),
        default=16_000,
        metavar="N",
        help="context window of the model (default 16000)",
    )
    flag("--turns", type=_between(6, 44), default=30, metavar="N", help="turns until the work is done (default 30)")
    flag("--seed", type=int, default=1, metavar="N", help="selects the incident to investigate (default 1)")
    flag("--port", type=_between(0, 65_535), default=0, metavar="N", help="port of the proxy (default: any free one)")
    flag("--once", action="store_true", help="exit when the work is done; the default if output is not a terminal")


def _between(least: int, most: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, found {text[:20]!a}")
        return int(text)

    return whole_number


def _add_settings_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--upstream", metavar="URL", help="base URL of the OpenAI-compatible API")
    command.add_argument("--config", metavar="FILE", type=Path, help="YAML file with settings; see config.example.yaml")
    command.add_argument(
        "--context-window", metavar="N", help="context window, in tokens, of models that the settings do not list"
    )
    command.add_argument(
        "--data-dir", metavar="DIR", help="folder for stored data (default ~/.local/share/context-proxy)"
    )


def _add_listening_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    command.add_argument("--port", help="port to listen on (default 8787; 0 picks a free one)")
    command.add_argument("--workers", metavar="N", help="worker processes that share the port (default 1)")


class _Command(NamedTuple):
    """A row of the table of commands."""

    name: str
    does: str
    run: Callable[[argparse.Namespace], int]
    flags: Sequence[Callable[[argparse.ArgumentParser], None]] = (_add_settings_flags,)


_COMMANDS: Final = (
    _Command("serve", "run the proxy", _serve, (_add_settings_flags, _add_listening_flags, _add_until_closed)),
    _Command(
        "run",
        "run an agent, or any command, behind a proxy that lives as long as it does",
        lambda given: _of("run").run(given, _settings(given)),
        (_add_settings_flags, _add_run),
    ),
    _Command(
        "env",
        "print the shell lines that send an agent to the proxy",
        lambda given: _of("wiring").env(given.agent, _settings(given), given.form, off=given.off),
        (_add_settings_flags, _add_env),
    ),
    _Command(
        "status",
        "show what the running proxies of this user say about themselves",
        lambda given: _of("status").status(_settings(given), as_json=given.json),
        (_add_settings_flags, _add_json),
    ),
    _Command(
        "init",
        "write a settings file from what can be found out: upstream, models, windows",
        lambda given: _of("init").init(load(None, _flags(given)), given.config or Path("config.yaml")),
    ),
    _Command(
        "check",
        "validate the settings; one line for each mistake",
        lambda given: _of("doctor").check(_settings(given)),
        (_add_settings_flags, _add_listening_flags),
    ),
    _Command("doctor", "send a test request; if it fails, say what to do", _doctor, (_add_settings_flags, _add_doctor)),
    _Command(
        "demo",
        "run one agent with and without the proxy; needs no key and no network",
        lambda given: _of("demo").run(given),
        (_add_demo,),
    ),
    _Command(
        "explain",
        "show what would be done to a chat request; sends and stores nothing",
        lambda given: _of("explain").explain(
            _settings(given), given.file, given.model, as_json=given.json, as_diff=given.diff
        ),
        (_add_settings_flags, _add_explain),
    ),
    _Command(
        "models",
        "show or forget the limits of models, and where they come from",
        _models,
        (_add_settings_flags, _add_models, _add_json),
    ),
    _Command(
        "artifacts",
        "list, show or remove what was taken out of requests",
        lambda given: _of("artifacts").artifacts(_settings(given), given),
        (_add_artifacts,),
    ),
    _Command(
        "mcp",
        "serve artifacts to an agent on this machine, over MCP on standard input and output",
        lambda given: _of("artifacts").serve_mcp(_settings(given)),
    ),
)


if __name__ == "__main__":
    sys.exit(main())
