"""Upstream selection, from the settings alone."""

import pytest

from proxy.config import RoutedUpstream, Settings, SettingsError, UpstreamSettings, load

CHAT, MESSAGES, RESPONSES, OLLAMA = "/chat/completions", "/messages", "/responses", "/api/chat"
FIRST = RoutedUpstream(match="claude-*", wire="messages", base_url="http://first/v1")
SECOND = RoutedUpstream(match="*-mini", base_url="http://second/v1")
SETTINGS = Settings(upstreams=(FIRST, SECOND))


@pytest.mark.parametrize(
    ("model", "paths"),
    [
        ("claude-mini", ([MESSAGES], [CHAT, RESPONSES, OLLAMA], [])),
        ("Claude-X", ([MESSAGES], [], [CHAT, RESPONSES, OLLAMA])),
        ("gpt-mini", ([], [CHAT, MESSAGES, RESPONSES, OLLAMA], [])),
        ("", ([], [], [CHAT, MESSAGES, RESPONSES, OLLAMA])),
    ],
)
def test_each_wire_of_a_model_leads_to_the_first_upstream_that_takes_it(model, paths):
    tried = SETTINGS.named_upstreams
    assert list(tried) == ["upstreams[0]", "upstreams[1]", "upstream"]
    assert tuple(list(SETTINGS.paths_to(one, model)) for one in tried.values()) == paths


def test_only_an_upstream_narrowed_to_a_wire_is_for_what_else_lies_under_its_path():
    below = "/messages/count_tokens"
    assert [one.is_only_for(below) for one in SETTINGS.named_upstreams.values()] == [True, False, False]
    assert not FIRST.is_only_for(CHAT)


def test_the_settings_before_one_upstream_have_no_other():
    before = SETTINGS.before(SECOND)
    assert before.upstream is SECOND
    assert before.upstreams == ()
    assert SETTINGS.upstream == UpstreamSettings()


def test_a_further_upstream_without_an_address_is_a_mistake_as_its_requests_and_key_would_go_elsewhere():
    with pytest.raises(SettingsError) as refused:
        load(flags={"upstreams": [{"match": "claude-*", "api_key": "sk-canary"}]})
    assert str(refused.value) == "upstreams[0].base_url: must be set"
