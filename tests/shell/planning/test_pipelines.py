import pytest

from proxy.config import Settings
from proxy.core.compaction import Budget
from proxy.core.media import RouteMedia, Routes
from proxy.core.models import AgentFileAccess, AgentTools, LimitName, Modality, ModelProfile, ToolImages
from proxy.core.overflow import Terms
from proxy.core.text import Direction, ExcerptLimits
from proxy.core.tokens import ByteClassCounter
from proxy.core.truncation import CutStrings, Sanitise, SanitiseText, TruncateToolOutput
from proxy.shell.planning import Pipelines

SHELL = AgentTools(AgentFileAccess.SHELL)


def pipeline(model="gpt-x", result_tokens=None, *, keeping=True, **settings):
    pipelines = Pipelines(Settings(**settings))
    budget = Budget(10**6, result_tokens=result_tokens)
    return pipelines.pipeline(ModelProfile(model), budget, ByteClassCounter(), SHELL, Terms(keeping=keeping))


def truncate(*args, **settings):
    (step,) = [step for step in pipeline(*args, **settings).local if isinstance(step, TruncateToolOutput)]
    return step


def test_the_limits_of_the_settings_hold_for_every_tool():
    step = truncate(
        tool_output={"max_lines": 7, "max_bytes": 999, "direction": "tail", "never": ["Skill"], "preview_chars": 500}
    )
    assert step.limits_of("any") == ExcerptLimits(7, 999, None, Direction.TAIL)
    assert (step.never, step.preview_chars) == ({"Skill"}, 500)


def test_a_tool_has_what_is_stated_for_it_and_the_rest_as_every_tool():
    tools = {"Read": {"max_bytes": 200_000}, "Bash": {"max_lines": 50, "direction": "head", "max_chars": 5_000}}
    step = truncate(tool_output={"tools": tools})
    assert step.limits_of("Read") == ExcerptLimits(2_000, 200_000)
    assert step.limits_of("Bash") == ExcerptLimits(50, 51_200, 5_000, Direction.HEAD)
    assert step.limits_of("other") == ExcerptLimits()


@pytest.mark.parametrize(("stated", "meant"), [(-1, 4_000), (0, 4_000), (1, 1_000), (999, 1_000), (1_234, 1_234)])
def test_a_model_has_a_limit_in_characters(stated, meant):
    models = [{"match": "gpt-*", "max_tool_result_chars": stated}]
    assert truncate(models=models).limits.max_chars == meant
    assert truncate("other", models=models).limits.max_chars is None
    tools = {"Read": {"max_chars": stated}}
    assert truncate(tool_output={"tools": tools}).limits_of("Read").max_chars == meant


def test_a_limit_in_characters_replaces_the_default_lines_and_bytes_and_no_others():
    models = [{"match": "gpt-*", "max_tool_result_chars": 32_000}]
    assert truncate(models=models).limits.admit("读取\n" * 10_666)
    assert truncate(models=models).limits.max_lines == 32_000
    assert truncate(models=models, tool_output={"max_bytes": 20_000}).limits.max_bytes == 20_000
    assert truncate(models=models, tool_output={"max_lines": 90}).limits.max_lines == 90
    assert truncate("gpt-x", 3_500, models=models).limits.max_bytes == 10_500, "the share of the window holds"
    own = truncate("m", 3_500, tool_output={"tools": {"Read": {"max_chars": 32_000}}}).limits_of("Read")
    assert (own.max_lines, own.max_bytes, own.max_chars) == (32_000, 10_500, 32_000)


@pytest.mark.parametrize(("tokens", "bound_by"), [(3_500, "window"), (100_000, "settings"), (None, "settings")])
def test_what_sets_the_limit_of_a_result_is_known(tokens, bound_by):
    assert truncate("m", tokens).bound_by == bound_by


def test_no_result_takes_more_than_its_share_of_the_window_when_it_arrives():
    assert truncate("m", 3_500).limits.max_bytes == 10_500
    assert truncate("m", 100_000).limits.max_bytes == 51_200
    assert truncate("m", 0).limits.max_bytes == 600


def test_while_nothing_can_be_kept_nothing_is_cut_that_fits():
    route, truncate = pipeline(keeping=False).local
    assert (type(route), truncate.may_cut) == (RouteMedia, False)  # it marks what imitates a notice, all the same
    assert not pipeline(keeping=False).notices.kept


def test_a_text_over_the_upstreams_limit_is_cut_whether_or_not_it_can_be_kept():
    profile = ModelProfile("m", at_most={LimitName.STRING: 9_000})
    for keeping in (True, False):
        terms = Terms(keeping=keeping)
        made = Pipelines(Settings()).pipeline(profile, Budget(10**6), ByteClassCounter(), SHELL, terms)
        assert CutStrings(9_000) in made.local


def test_characters_are_replaced_for_the_models_that_are_named():
    models = [{"match": "GPT-x*", "sanitise": ["non_bmp"]}]
    assert pipeline(models=models).local[-1] == SanitiseText(frozenset({Sanitise.NON_BMP}))
    assert [type(step) for step in pipeline("other", models=models).local] == [RouteMedia, TruncateToolOutput]
    assert pipeline(models=models, keeping=False).local[2:] == (SanitiseText(frozenset({Sanitise.NON_BMP})),)


def route(profile, **settings):
    pipelines = Pipelines(Settings(**settings))
    return pipelines.pipeline(profile, Budget(10**6), ByteClassCounter(), SHELL).local[0]


def test_media_are_routed_by_what_the_profile_and_the_settings_say():
    seeing = ModelProfile(
        "m", modalities=frozenset({Modality.TEXT, Modality.VISION}), refused=frozenset({Modality.FILE})
    )
    media = {"max_bytes": 2_000, "max_image_pixels": 3_000, "unknown_capability": "text"}
    assert route(seeing, media=media) == RouteMedia(
        Routes(seeing.modalities, seeing.refused, is_strict=True, max_bytes=2_000, max_image_pixels=3_000)
    )


@pytest.mark.parametrize(
    ("model", "base_url", "stated", "target"),
    [
        ("gpt-5", "https://api.openai.com/v1", None, ToolImages.USER_AFTER_BATCH),
        ("mistral-small-2506", "http://vllm:8000/v1", None, ToolImages.USER_AFTER_ASSISTANT),
        ("anything", "https://api.mistral.ai/v1", None, ToolImages.USER_AFTER_ASSISTANT),
        ("mistral-small-2506", "http://vllm:8000/v1", "text", ToolImages.TEXT),
    ],
)
def test_images_of_results_go_where_settings_or_the_maker_of_the_model_say(model, base_url, stated, target):
    models = [{"match": "*", "tool_images": stated}] if stated else []
    seeing = ModelProfile(model, modalities=frozenset({Modality.VISION}))
    assert route(seeing, models=models, upstream={"base_url": base_url}).tool_images is target


def test_images_of_results_stay_for_an_unknown_model():
    unknown = ModelProfile("m")
    assert route(unknown).tool_images is ToolImages.KEEP
    models = [{"match": "m", "tool_images": "user_after_batch"}]
    assert route(unknown, models=models).tool_images is ToolImages.USER_AFTER_BATCH
    assert route(unknown, media={"unknown_capability": "text"}).tool_images is ToolImages.USER_AFTER_BATCH


def test_the_notices_speak_the_language_of_the_settings_and_know_the_tools():
    made = pipeline(language="zh")
    assert (made.notices.language, made.notices.reach) == ("zh", AgentFileAccess.SHELL)


def test_the_rules_of_the_budget_are_those_of_the_settings():
    settings = Settings(
        budget={"fill": 0.9, "low_mark": 0.5, "margin": 77, "clamp_reply": False},
        defaults={"max_request_chars": 5_000, "max_request_bytes": 6_000},
    )
    rules = Pipelines(settings).rules
    assert (rules.fill, rules.low_mark, rules.margin_tokens, rules.clamp_reply) == (0.9, 0.5, 77, False)
    assert (rules.max_request_chars, rules.max_request_bytes) == (5_000, 6_000)


def test_the_same_model_and_room_have_the_same_steps():
    assert pipeline().local == pipeline().local
    assert pipeline("a").compaction_steps == pipeline("b").compaction_steps
