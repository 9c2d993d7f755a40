"""`context-proxy models`: each value of a profile with its source.

Rule: it works without an upstream and says so. With several upstreams, each supplies the models whose requests go to
it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from proxy.commands.screen import complain, plain, show
from proxy.config import Settings, UpstreamSettings
from proxy.core.models import window_in_name
from proxy.shell.artifacts import create_tenants, with_secret
from proxy.shell.models import HOW_TO_STATE_A_WINDOW, Learning, ModelResolver, counter_for
from proxy.shell.operator import described_profile
from proxy.shell.planning import Pipelines
from proxy.shell.resources import configure_logging


def models(settings: Settings, name: str | None, *, as_json: bool) -> int:
    """Print one model's profile, or without a name those of all that the settings and the upstreams name; the exit
    status."""
    configure_logging(settings.log, sys.stderr)
    upstreams = [one for one in settings.named_upstreams.values() if name is None or settings.paths_to(one, name)]
    found = [_models_of(settings, one, name) for one in upstreams]
    if as_json:
        show({"upstreams": found}, as_json=True)
        return 0
    for one in found:
        profiles = one.pop("models")
        show(one | (profiles[0] if name is not None else {"models": [_row(each) for each in profiles]}), as_json=False)
        if not profiles:
            print("Neither the configuration nor the upstream names a model: context-proxy models NAME")
        if any(str(each["window_tokens"]["from"]).startswith("guessed") for each in profiles):
            print(f"Nothing is left out or refused on a guessed window; {HOW_TO_STATE_A_WINDOW}")
    return 0


def _models_of(settings: Settings, upstream: UpstreamSettings, name: str | None) -> dict[str, Any]:
    """An upstream and its models, or this one: patterns in the settings name none."""
    resolver = ModelResolver(settings.before(upstream))

    def names() -> list[str]:
        written = (entry.match for entry in settings.models if not any(sign in entry.match for sign in "*?["))
        known = dict.fromkeys((*written, *resolver.learning.models, *resolver.discovery.names))
        served = [one for one in known if settings.paths_to(upstream, window_in_name(one).plain)]
        return served if name is None else [name]

    failure = asyncio.run(resolver.ask_now(names))
    described = [_described(settings, resolver, one) for one in names()]
    about = {"upstream": upstream.base_url, "requests": upstream.requests, "listed": failure is None, "reason": failure}
    return {**about, "models": described}


def _described(settings: Settings, resolver: ModelResolver, name: str) -> dict[str, Any]:
    profile = resolver.profile(name)
    ratio, measured = resolver.ratio(profile)
    results = Pipelines(settings).result_limits(profile, ratio)
    return {
        "model": profile.known_as,
        **described_profile(profile),
        "counted_by": counter_for(profile.tokenizer, profile.model).name,
        "token_ratio": {"value": ratio, "from": "learned from usage" if measured else "default"},
        "tool_results": {
            "limits": results.limits,
            "bound_by": results.bound_by,
            "tools": dict(sorted(results.tools.items())),
            "never": sorted(results.never),
        },
    }


def _row(model: dict[str, Any]) -> dict[str, Any]:
    """What the list of all models shows of one."""
    shown = {name: model[name]["value"] for name in ("window_tokens", "output_tokens", "modalities")}
    return {"model": model["model"], **shown, "window_from": model["window_tokens"]["from"]}


def forget_models(settings: Settings, name: str | None) -> int:
    """Forget what upstreams have taught about a model, or None for all of them, and print what that was; the exit
    status."""
    configure_logging(settings.log, sys.stderr)
    if name is not None and settings.state.url is not None:
        return complain("replicas that share state.url would teach it again; --forget --all is for all of them", 2)
    forgotten = Learning(settings.data_dir, settings.upstream.base_url).erase(name)
    for upstream, model in forgotten:
        print(plain(f"Forgot what {upstream} taught about {model}."))
    if not forgotten:
        print(plain(f"Nothing was learned about {name or 'any model'} in {settings.data_dir.absolute()}."))
    if settings.state.url is not None:
        from proxy.shell.models.shared_state import forget_everywhere  # noqa: PLC0415 - needs an extra

        problem = forget_everywhere(settings.state.url, create_tenants(with_secret(settings)).fleet)
        return 0 if problem is None else complain(f"only this machine has forgotten; {problem}")
    return 0
