from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from support.respx_upstream import RespxUpstream
from support.waiting import until

from proxy.config import Settings
from proxy.core.models import Certainty, Modality, ModelProfile, facts, smallest, stating
from proxy.shell.models import Catalogue, Learning, ModelResolver
from proxy.shell.models.profiles import MAX_PROFILES
from proxy.wire import ModelLimits
from tools.build_hooks import index_of

BASE, AT_HOME = "https://llm.example.org/v1", "http://127.0.0.1:8000/v1"
CATALOGUE = index_of(
    json.dumps(
        {
            "openai": {
                "models": {
                    "gpt-5": {
                        "limit": {"context": 400000, "input": 272000, "output": 128000},
                        "modalities": {"input": ["text", "image"], "output": ["text"]},
                    }
                }
            }
        }
    ).encode()
)
TEXT = frozenset({Modality.TEXT})
VISION = frozenset({Modality.TEXT, Modality.VISION})
UNSTATED = frozenset({Modality.AUDIO, Modality.VIDEO, Modality.FILE})


@dataclass
class Taught:
    """What was learned, of whatever model."""

    found: tuple[ModelLimits, str] | None = None
    asked_for: list[str] = field(default_factory=list)
    version: int = 0
    models: tuple[str, ...] = ()

    def note_allocated(self, model: str, window_tokens: int) -> None:
        raise AssertionError("nothing is known of any model")

    def limits(self, model: str, *_: object) -> tuple[ModelLimits, str] | None:
        self.asked_for.append(model)
        return self.found


def resolver(learned: tuple[ModelLimits, str] | Taught | Learning | None = None, **settings: Any) -> ModelResolver:
    made = Settings(**{"upstream": {"base_url": BASE}, **settings})
    return ModelResolver(
        made,
        upstream=RespxUpstream(made.upstream),
        learning=learned if isinstance(learned, Taught | Learning) else Taught(learned),
        catalogue=Catalogue(made.upstream.base_url, lambda: CATALOGUE),
    )


async def resolver_listing(answer: dict[str, Any], base: str = BASE, **settings: Any) -> ModelResolver:
    """A resolver whose upstream has said this."""
    with respx.mock:
        respx.get(f"{base}/models").respond(json={"data": [answer]})
        respx.route().respond(404)
        made = resolver(upstream={"base_url": base}, **settings)
        assert await made.discovery.ask() is None
    return made


def test_an_unknown_model_has_the_default_window_and_unknown_capabilities() -> None:
    assert resolver().profile("nobody-knows-1") == ModelProfile(
        "nobody-knows-1", 128_000, certainty=Certainty.GUESSED, sources={"window_tokens": "default"}
    )


async def test_a_window_is_certain_when_settings_a_refusal_the_upstream_or_its_own_entry_state_it() -> None:
    assert not resolver(defaults={"context_window": 1000}).profile("nobody-knows-1").window_is_guessed
    assert not resolver(models=[{"match": "*", "context_window": 1000}]).profile("gpt-5").window_is_guessed
    assert not resolver(learned=(ModelLimits(50000), "learned")).profile("gpt-5").window_is_guessed
    assert not (await resolver_listing({"id": "gpt-5", "context_length": 1000})).profile("gpt-5").window_is_guessed
    at_home = resolver(upstream={"base_url": "https://api.openai.com/v1"}).profile("gpt-5")
    assert (at_home.window_is_guessed, at_home.certain_window_tokens) == (False, 400000)


def test_the_default_and_another_providers_entry_are_guesses() -> None:
    assert resolver().profile("nobody-knows-1").certain_window_tokens is None
    assert resolver().profile("gpt-5").window_is_guessed
    assert resolver().profile("openai/gpt-5").window_is_guessed, "whoever serves it, it is not that provider"
    assert resolver(models=[{"match": "*", "max_output_tokens": 5}]).profile("gpt-5").window_is_guessed


def test_the_catalogue_states_what_no_other_source_does() -> None:
    profile = resolver().profile("gpt-5")
    assert profile == ModelProfile(
        *("gpt-5", 400000, 272000, 128000, VISION, UNSTATED),
        certainty=Certainty.GUESSED,
        windows=((400000, "catalogue openai/gpt-5"),),
        sources=profile.sources,
    )
    assert set(profile.sources.values()) == {"catalogue openai/gpt-5"}


async def test_each_kind_of_input_is_known_from_the_first_source_that_says_anything_about_it() -> None:
    def reads(profile: ModelProfile) -> list[bool | None]:
        return [profile.reads(kind) for kind in (Modality.VISION, Modality.AUDIO, Modality.FILE)]

    assert reads(resolver().profile("gpt-5")) == [True, None, None]
    flagged = await resolver_listing({"id": "gpt-5", "capabilities": {"vision": False}})
    assert reads(flagged.profile("gpt-5")) == [False, None, None]
    listed = await resolver_listing({"id": "gpt-5", "input_modalities": ["text"]})
    assert reads(listed.profile("gpt-5")) == [False, False, None], "OpenRouter reads files for any model"
    with_files = await resolver_listing({"id": "gpt-5", "input_modalities": ["text", "file"]})
    assert reads(with_files.profile("gpt-5")) == [False, False, True]
    configured = resolver(models=[{"match": "*", "input": ["text", "file"]}])
    assert reads(configured.profile("gpt-5")) == [False, False, True], "a setting says it all"
    assert reads(resolver().profile("nobody-knows-1")) == [None, None, None]


async def test_the_upstream_beats_the_catalogue_value_by_value() -> None:
    profile = (await resolver_listing({"id": "gpt-5", "context_length": 300000})).profile("gpt-5")
    assert (profile.window_tokens, profile.sources["window_tokens"]) == (300000, "upstream /v1/models")
    assert (profile.output_tokens, profile.sources["output_tokens"]) == (128000, "catalogue openai/gpt-5")
    assert profile.modalities == VISION


async def test_the_defaults_that_the_operator_set_beat_the_upstream() -> None:
    answer = {"id": "gpt-5", "context_length": 9999, "max_completion_tokens": 9, "input_modalities": ["text", "image"]}
    profile = (await resolver_listing(answer, defaults={"context_window": 32768, "input": ["text"]})).profile("gpt-5")
    assert (profile.window_tokens, profile.modalities, profile.output_tokens) == (32768, TEXT, 9)
    assert profile.sources["window_tokens"] == profile.sources["modalities"] == "config defaults"
    assert profile.sources["output_tokens"] == "upstream /v1/models"


async def test_the_configuration_beats_all_and_the_rest_comes_from_the_next() -> None:
    own = {"match": "gpt-5"}
    made = await resolver_listing(
        {"id": "gpt-5", "context_length": 300000},
        models=[{"match": "gpt-4*", "context_window": 1000}, {**own, "max_output_tokens": 7, "tokenizer": "bytes"}],
        defaults={"context_window": 32768},
        learned=(ModelLimits(50000, None, 11), "learned from a refusal"),
    )
    profile = made.profile("gpt-5")
    assert (profile.window_tokens, profile.output_tokens, profile.tokenizer) == (50000, 7, "bytes")
    assert profile.sources == {
        "window_tokens": "learned from a refusal",
        "output_tokens": "config models[1]",
        "tokenizer": "config models[1]",
        "modalities": "catalogue openai/gpt-5",
    }


@pytest.mark.parametrize("name", ["qwen-vl-max", "QWEN-VL-MAX", "qwen-vl"])
def test_a_glob_matches_in_either_case_and_the_first_match_wins(name: str) -> None:
    everything = {"match": "*", "context_window": 2000, "max_output_tokens": 5}
    made = resolver(models=[{"match": "Qwen-VL*", "context_window": 1000}, everything])
    profile = made.profile(name)
    assert (profile.window_tokens, profile.output_tokens) == (1000, None)
    assert made.profile("org/qwen-vl").window_tokens == 2000


def test_an_input_limit_belongs_to_the_window_that_it_was_stated_with() -> None:
    other = resolver(models=[{"match": "gpt-5", "context_window": 1_000_000}]).profile("gpt-5")
    same = resolver(models=[{"match": "gpt-5", "context_window": 400_000}]).profile("gpt-5")
    assert (other.input_tokens, same.input_tokens) == (None, 272000)
    assert "input_tokens" not in other.sources


def test_an_input_limit_that_comes_without_a_window_holds() -> None:
    learned = resolver(learned=(ModelLimits(input_tokens=90000), "learned")).profile("gpt-5")
    assert (learned.window_tokens, learned.input_tokens, learned.sources["input_tokens"]) == (400000, 90000, "learned")


def test_a_profile_is_remembered_until_a_source_has_something_new() -> None:
    learned = Taught()
    made, asked_for = resolver(learned), learned.asked_for
    first = made.profile("gpt-5")
    assert made.profile("gpt-5") is first
    assert asked_for == ["gpt-5"]
    made.forget()
    assert made.profile("gpt-5") == first
    assert asked_for == ["gpt-5", "gpt-5"]


def test_no_more_names_are_remembered_than_may_be() -> None:
    learned = Taught()
    made, asked_for = resolver(learned), learned.asked_for
    for number in range(MAX_PROFILES + 1):
        made.profile(f"m{number}")
    made.profile(f"m{MAX_PROFILES}")
    made.profile("m0")
    assert asked_for[MAX_PROFILES:] == [f"m{MAX_PROFILES}", "m0"]


def test_a_name_without_end_is_cut() -> None:
    assert resolver().profile("x" * 10_000_000).model == "x" * 256


@respx.mock
async def test_a_clients_key_opens_the_list() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        is_known = request.headers.get("authorization") == "Bearer sk-client"
        return httpx.Response(200, json=[{"id": "m-1", "context_length": 8192}]) if is_known else httpx.Response(401)

    respx.get(f"{BASE}/models").mock(side_effect=answer)
    made = resolver()
    made.discovery.start()

    def window() -> int:
        made.discovery.offer_key(b"Bearer sk-client")
        return made.profile("m-1").window_tokens

    try:
        await until(lambda: window() == 8192)
    finally:
        await made.discovery.close()


async def test_profiles_are_had_from_other_threads() -> None:
    made = resolver()
    profiles = await asyncio.gather(*(asyncio.to_thread(made.profile, "gpt-5") for _ in range(8)))
    assert {profile.window_tokens for profile in profiles} == {400000}


MADE = resolver(models=[{"match": "*[a-f]*", "context_window": 4096}])


@given(st.text(max_size=400))
def test_any_string_has_a_profile(name: str) -> None:
    profile = MADE.profile(name)
    assert profile.window_tokens >= 512
    assert profile.sources["window_tokens"]


def test_a_window_that_was_inferred_bounds_and_is_no_evidence() -> None:
    profile = resolver(learned=(ModelLimits(9000, certainty=Certainty.INFERRED), "inferred")).profile("gpt-5")
    assert (profile.window_tokens, profile.window_is_guessed, profile.certain_window_tokens) == (9000, False, None)


async def test_a_window_selected_by_requests_is_a_guess_not_bound_by_lists_or_catalogue() -> None:
    home = resolver(upstream={"base_url": "https://api.openai.com/v1"})
    listed = await resolver_listing({"id": "gpt-5", "context_length": 300_000})
    for known, name in ((home, "gpt-5"), (listed, "gpt-5"), (resolver(), "nobody-knows-1")):
        plain, lifted = known.profile(name), known.profile(f"{name}[1m]")
        assert (lifted.model, lifted.known_as, lifted.window_tokens) == (name, f"{name}[1m]", 1_000_000)
        assert (lifted.window_is_guessed, lifted.input_tokens) == (True, None)
        assert (lifted.output_tokens, lifted.modalities) == (plain.output_tokens, plain.modalities)
        assert (plain.known_as, plain.window_tokens < 1_000_000) == (name, True)


@pytest.mark.parametrize(
    "stated",
    [
        {"models": [{"match": "m", "context_window": 50_000}]},
        {"defaults": {"context_window": 50_000}},
        {"learned": (ModelLimits(50_000, certainty=Certainty.LEARNED), "learned")},
    ],
)
def test_a_window_of_the_settings_or_of_a_refusal_is_not_lifted(stated: dict[str, Any]) -> None:
    profile = resolver(**stated).profile("m[1m]")
    assert (profile.certain_window_tokens, profile.suffix) == (50_000, "[1m]")


async def test_a_stated_window_of_a_million_or_of_a_server_of_ones_own_is_not_lifted() -> None:
    for answer, base in (({"context_length": 1_000_000}, BASE), ({"max_model_len": 32_768}, AT_HOME)):
        made = await resolver_listing({"id": "m", **answer}, base)
        assert made.profile("m[1m]").certain_window_tokens == next(iter(answer.values()))


@pytest.mark.parametrize(
    ("others", "window", "source"),
    [
        ({}, 50_000, "the request states it"),
        ({"defaults": {"context_window": 9_000}}, 50_000, "the request states it"),
        ({"models": [{"match": "m", "context_window": 90_000}]}, 50_000, "the request states it"),
        ({"models": [{"match": "m", "context_window": 9_000}]}, 9_000, "the request states it"),
        ({"learned": (ModelLimits(9_000, certainty=Certainty.LEARNED), "a refusal")}, 9_000, "a refusal"),
        ({"learned": (ModelLimits(90_000, certainty=Certainty.LEARNED), "a refusal")}, 50_000, "the request states it"),
        ({"learned": (ModelLimits(output_tokens=500), "a refusal")}, 50_000, "the request states it"),
    ],
)
def test_a_window_that_the_request_states_binds_it_within_what_the_model_is_allowed(
    others: dict[str, Any], window: int, source: str
) -> None:
    profile = resolver(**others).profile(stating("m", 50_000))
    assert (profile.model, profile.known_as) == ("m", "m[window=50000]")
    assert profile.sources["window_tokens"] == source
    assert profile.certain_window_tokens == window


async def test_a_window_that_the_request_states_is_no_longer_than_the_upstreams_list_says() -> None:
    made = await resolver_listing({"id": "m", "context_length": 40_000})
    assert made.profile(stating("m", 50_000)).certain_window_tokens == 40_000
    assert made.profile(stating("m", 30_000)).certain_window_tokens == 30_000


async def test_what_a_server_has_allocated_says_nothing_of_requests_that_state_their_window() -> None:
    compared: list[str] = []

    class Lessons(Taught):
        def note_allocated(self, model: str, _: int) -> None:
            compared.append(model)

    lessons = Lessons(models=("m", stating("m", 50_000)))
    await resolver_listing({"id": "m", "max_model_len": 32_768}, AT_HOME, learned=lessons)
    assert compared == ["m"]


def test_every_other_limit_reaches_the_profile_and_the_smallest_counts(tmp_path: Path) -> None:
    found = resolver(Learning(tmp_path, BASE))
    found.learning.learn("gpt-5", {f"{facts.AT_MOST}images": 100}, "k1")
    found.learning.learn("gpt-5", {f"{facts.AT_MOST}images": 50}, "k1")
    found.learning.learn("gpt-5", {f"{facts.AT_MOST}pages": 100}, "k1")
    assert found.profile("gpt-5", "k1").at_most == {"images": 50, "pages": 100}
    assert found.profile("gpt-5", "k2").at_most == {}
    assert smallest([{"images": 20}, found.profile("gpt-5", "k1").at_most]) == {"images": 20, "pages": 100}
