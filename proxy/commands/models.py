"""`context-proxy models`: each value of a profile, and where it came from.

Rule: it works without an upstream and says so; names that an upstream sent cannot control the terminal. With several
upstreams, each supplies the models whose requests go to it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.commands.explain import create_console, number
from proxy.config import Settings, StateUrl, UpstreamSettings
from proxy.core.models import ModelProfile, window_in_name
from proxy.core.text import ExcerptLimits
from proxy.core.truncation import TruncateToolOutput
from proxy.shell.artifacts import create_folder, create_tenants
from proxy.shell.models import HOW_TO_STATE_A_WINDOW, Learning, ModelResolver, counter_for, key_of, stated_by
from proxy.shell.planning import Pipelines
from proxy.shell.resources import configure_logging

MAX_TOOLS: Final = 12
"""Tools shown with their own limits; the JSON has all of them."""

_ALL: Final = "the bytes of a request, for all models"
_LABELS: Final[Mapping[str, str]] = {
    "window_tokens": "context window",
    "input_tokens": "input limit",
    "input_chars": "input limit, characters",
    "rate_tokens": "limit per minute",
    "prompt_rate_tokens": "limit per minute, without the reply",
    "input_bytes": "input limit, bytes",
    "output_tokens": "output limit",
    "modalities": "reads",
    "refused": "has refused",
    "tokenizer": "tokenizer",
}


def models(settings: Settings, name: str | None, *, as_json: bool) -> int:
    """Print profiles; the exit status."""
    configure_logging(settings.log, sys.stderr)
    print_models(settings, name, create_console(), as_json=as_json)
    return 0


def forget_models(settings: Settings, name: str | None) -> int:
    """Forget what upstreams have taught about a model, or None for all of them, and print what that was; the exit
    status."""
    configure_logging(settings.log, sys.stderr)
    if name is not None and settings.state.url is not None:
        print("replicas that share state.url would teach it again; --forget --all is for all of them", file=sys.stderr)
        return 2
    forgotten = Learning(settings.data_dir, settings.upstream.base_url).erase(name)
    for upstream, model in forgotten:
        print(_plain(f"Forgot what {upstream} taught about {_ALL if model == key_of(None) else model}.").plain)
    if not forgotten:
        print(_plain(f"Nothing was learned about {name or 'any model'} in {settings.data_dir.absolute()}.").plain)
    if settings.state.url is not None and (problem := _forget_everywhere(settings, settings.state.url)) is not None:
        print(f"only this machine has forgotten; {problem}", file=sys.stderr)
        return 1
    return 0


def _forget_everywhere(settings: Settings, url: StateUrl) -> str | None:
    from proxy.shell.models.shared_state import forget_everywhere  # noqa: PLC0415 - needs an extra

    tenants = create_tenants(settings, create_folder(settings))
    if tenants.fleet is None:
        return f"the secret that replicas share cannot be read: {tenants.problem}"
    return forget_everywhere(url, tenants.fleet)


def print_models(settings: Settings, name: str | None, console: Console, *, as_json: bool) -> None:
    """Print one model's profile, or without a name those of all that the settings and the upstreams name."""
    upstreams = [one for one in settings.named_upstreams.values() if name is None or settings.paths_to(one, name)]
    found = [_models_of(settings, one, name) for one in upstreams]
    if as_json:
        described = [_as_json(one, name) for one in found]
        shown = described[0] if len(found) == 1 else {"upstreams": described}
        console.out(json.dumps(shown, ensure_ascii=True, indent=2), highlight=False)
        return
    for one in found:
        if settings.upstreams:
            console.print(Text(f"{one.upstream.requests}: {one.upstream.base_url}", style="bold"))
        _print(one, name, console)


class _UpstreamModels(Struct, frozen=True):
    """Knowledge about the models of one upstream."""

    upstream: UpstreamSettings
    failure: str | None
    """Why it did not list them."""
    profiles: Sequence[ModelProfile]
    ratios: Sequence[tuple[float, bool]]
    """The upstream's tokens for one of ours and whether that was measured, for each profile."""
    limits: Sequence[TruncateToolOutput]


def _models_of(settings: Settings, upstream: UpstreamSettings, name: str | None) -> _UpstreamModels:
    resolver = ModelResolver(settings.before(upstream))

    def names() -> tuple[str, ...]:
        return (name,) if name is not None else _names(settings, upstream, resolver)

    failure = asyncio.run(resolver.ask_now(names))
    profiles = [resolver.profile(one) for one in names()]
    ratios = [resolver.ratio(one) for one in profiles]
    limits_of = Pipelines(settings).result_limits
    limits = [limits_of(one, ratio) for one, (ratio, _) in zip(profiles, ratios, strict=True)]
    return _UpstreamModels(upstream, failure, profiles, ratios, limits)


def _print(found: _UpstreamModels, name: str | None, console: Console) -> None:
    if name is not None:
        console.print(_one(found.profiles[0], found.ratios[0], found.limits[0]))
    elif found.profiles:
        console.print(_many(found.profiles))
    else:
        console.print(
            "Neither the configuration nor the upstream names a model that is served here; "
            "ask for one: context-proxy models NAME"
        )
    if any(profile.window_is_guessed for profile in found.profiles):
        console.print(Text(f"Nothing is left out or refused on a guessed window; {HOW_TO_STATE_A_WINDOW}"))
    if found.failure is not None:
        console.print(Text(f"{found.upstream.base_url} did not list its models: {found.failure}", style="yellow"))


def _names(settings: Settings, upstream: UpstreamSettings, resolver: ModelResolver) -> tuple[str, ...]:
    """Names of the models whose requests go to this upstream. Patterns name no model; the models that match them appear
    under their own names."""
    written = (entry.match for entry in settings.models if not any(sign in entry.match for sign in "*?["))
    names = dict.fromkeys((*written, *resolver.learning.models, *resolver.discovery.names))
    return tuple(name for name in names if settings.paths_to(upstream, window_in_name(name).plain))


def _one(profile: ModelProfile, learned_ratio: tuple[float, bool], results: TruncateToolOutput) -> Table:
    table = Table(title=_plain(profile.known_as), title_justify="left", box=None, header_style="dim")
    for heading in ("value", "", "from"):
        table.add_column(heading)
    for field, label in _LABELS.items():
        table.add_row(label, _shown(profile, field), _plain(_source(profile, field)))
    ratio, measured = learned_ratio
    table.add_row("its tokens for one of ours", f"{ratio:.2f}", _plain("learned from usage" if measured else "default"))
    table.add_row("a tool result at most", _limits(results.limits), _bound_by(results))
    for tool in sorted(results.tools)[:MAX_TOOLS]:
        table.add_row(_plain(f"one of {tool}"), _limits(results.tools[tool]), "tool_output.tools")
    if results.never:
        table.add_row("never cut", _plain(", ".join(sorted(results.never)[:MAX_TOOLS])), "tool_output.never")
    return table


def _bound_by(results: TruncateToolOutput) -> str:
    """Source of the limit of a tool result."""
    chars = "settings" if results.limits.max_chars is None else "max_tool_result_chars"
    return "share of the window, settings" if results.bound_by == "window" else chars


def _limits(limits: ExcerptLimits) -> str:
    """Lines, bytes and characters of a result, all of which apply."""
    chars = () if limits.max_chars is None else (f"{number(limits.max_chars)} characters",)
    return ", ".join((f"{number(limits.max_lines)} lines", f"{number(limits.max_bytes)} bytes", *chars))


def _many(profiles: Sequence[ModelProfile]) -> Table:
    table = Table(box=None, header_style="dim")
    table.add_column("model")
    for heading in ("window", "input", "output"):
        table.add_column(heading, justify="right")
    table.add_column("reads")
    table.add_column("window from")
    for profile in profiles:
        cells = [_shown(profile, field) for field in ("window_tokens", "input_tokens", "output_tokens", "modalities")]
        table.add_row(_plain(profile.known_as), *cells, _plain(_source(profile, "window_tokens")))
    return table


def _source(profile: ModelProfile, field: str) -> str:
    names = (
        ("refused", "results_hold_text", "refuses_our_tool", "refuses_cut_results") if field == "refused" else (field,)
    )
    return next((source for name in names if (source := stated_by(profile, name))), "")


def _shown(profile: ModelProfile, field: str) -> str:
    value = getattr(profile, field)
    if field == "refused":
        in_results = ["media in the results of tools"] if profile.results_hold_text else []
        our_tool = ["read_artifact"] if profile.refuses_our_tool else []
        cut_results = ["cut results"] if profile.refuses_cut_results else []
        return ", ".join([*sorted(value), *in_results, *our_tool, *cut_results]) or "–"
    if field == "modalities":
        unknown = f"; unknown: {', '.join(sorted(profile.unstated))}" if profile.unstated else ""
        return "unknown" if value is None else ", ".join(sorted(value)) + unknown
    if field == "tokenizer":
        return value or f"by name: {counter_for(None, profile.model).name}"
    return "–" if value is None else number(value)


def _as_json(found: _UpstreamModels, name: str | None) -> dict[str, Any]:
    described = [
        {
            "model": profile.known_as,
            **{field: getattr(profile, field) for field in _LABELS if field not in ("modalities", "refused")},
            "window_is_guessed": profile.window_is_guessed,
            "refused": sorted(profile.refused),
            "results_hold_text": profile.results_hold_text,
            "refuses_our_tool": profile.refuses_our_tool,
            "refuses_cut_results": profile.refuses_cut_results,
            "modalities": None if profile.modalities is None else sorted(profile.modalities),
            "unstated": sorted(profile.unstated),
            "tool_results": {
                **_limits_as_json(results.limits),
                "bound_by": results.bound_by,
                "tools": {tool: _limits_as_json(own) for tool, own in sorted(results.tools.items())},
                "never": sorted(results.never),
            },
            "sources": dict(profile.sources),
        }
        for profile, results in zip(found.profiles, found.limits, strict=True)
    ]
    failure = found.failure
    upstream = {"base_url": found.upstream.base_url, "listed": failure is None, "reason": failure}
    return {**described[0], "upstream": upstream} if name is not None else {"models": described, "upstream": upstream}


def _limits_as_json(limits: ExcerptLimits) -> dict[str, int | None]:
    return {"max_lines": limits.max_lines, "max_bytes": limits.max_bytes, "max_chars": limits.max_chars}


def _plain(text: str) -> Text:
    """Foreign text for a terminal: no markup, no control characters."""
    return Text("".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text))
