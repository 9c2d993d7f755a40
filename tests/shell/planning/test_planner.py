import json

import pytest
from support.planners import TENANT, TOOLS, Models, body, planner, run
from support.strategies import exchange, pairing_faults, user

from proxy.config import Settings
from proxy.core.conversation import Reason
from proxy.core.models import ModelProfile
from proxy.errors import MalformedRequest
from proxy.shell.planning import Pipelines, Planner
from proxy.wire.chat_completions import CHAT_COMPLETIONS


async def unkept(one, raw):
    planned = await one.plan(CHAT_COMPLETIONS, TENANT, raw)
    return await one.again(planned, planned.inputs.terms._replace(keeping=False))


async def test_what_fits_goes_as_the_very_bytes():
    raw = body(run(3), temperature=0.50, max_tokens=500).replace(b'"tools"', b' "tools" ')
    planned = await planner().plan(CHAT_COMPLETIONS, TENANT, raw)
    assert planned.body() is planned.request.body
    assert planned.body() == raw
    assert not planned.changed
    assert planned.reasons == {}


async def test_what_is_too_long_is_cut_and_its_other_members_keep_their_bytes():
    raw = body(run(80), temperature=0.50, unknown={"a": [1, 2]})
    planned = await planner().plan(CHAT_COMPLETIONS, TENANT, raw)
    sent = planned.body()
    assert len(sent) < len(raw) / 2
    assert b'"temperature":0.5' in sent
    assert b'"unknown":{"a": [1, 2]}' in sent
    assert pairing_faults(list(planned.plan.messages)) == []
    assert planned.plan.fits
    assert planned.reasons["old_exchange"] == sum(e.reason is Reason.OLD_EXCHANGE for e in planned.plan.edits)


def model_planner(window):
    """A planner for a model whose vocabulary is installed."""
    return Planner(Pipelines(Settings()), Models(lambda *_: ModelProfile("gpt-4o", window)))


@pytest.mark.parametrize("made", [planner, lambda: model_planner(16_000), lambda: model_planner(32_000)])
async def test_a_growing_conversation_is_planned_as_if_nothing_were_remembered(made):
    remembering = made()
    for count in range(0, 90, 3):
        raw = body(run(count))
        again = await remembering.plan(CHAT_COMPLETIONS, TENANT, raw)
        anew = await made().plan(CHAT_COMPLETIONS, TENANT, raw)
        assert again.body() == anew.body()
        assert again.plan == anew.plan
    assert again.known_messages == 2 + 2 * 84


async def test_another_conversation_that_begins_alike_is_planned_for_itself():
    remembering = planner(1_000_000)
    await remembering.plan(CHAT_COMPLETIONS, TENANT, body(run(80)))
    raw = body([*run(2), user("another task"), *run(50)[2:]])
    planned = await remembering.plan(CHAT_COMPLETIONS, TENANT, raw)
    assert planned.known_messages > 0
    assert planned.request.body == raw


async def test_only_edits_of_new_messages_are_new():
    remembering = planner(100_000)
    long = "a long line of output\n" * 3_000
    first = await remembering.plan(CHAT_COMPLETIONS, TENANT, body([user(), *exchange([long])]))
    assert len(first.new_edits) == 1
    second = await remembering.plan(
        CHAT_COMPLETIONS, TENANT, body([user(), *exchange([long]), *exchange([long], first_call=2)])
    )
    assert (len(second.plan.edits), len(second.new_edits)) == (2, 1)
    assert second.new_edits[0].message == 4


async def test_other_limits_of_the_same_conversation_start_anew():
    windows = {"m": 8_000, "large": 200_000}
    remembering = Planner(
        Pipelines(Settings()), Models(lambda model, _: ModelProfile(model, windows[model], tokenizer="bytes"))
    )
    assert (await remembering.plan(CHAT_COMPLETIONS, TENANT, body(run(80)))).changed
    assert not (await remembering.plan(CHAT_COMPLETIONS, TENANT, body(run(80), model="large"))).changed
    windows["m"] = 200_000
    assert not (await remembering.plan(CHAT_COMPLETIONS, TENANT, body(run(80)))).changed


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_the_reply_gives_way_before_the_history(name):
    raw = body(run(20), **{name: 6_000})
    planned = await planner().plan(CHAT_COMPLETIONS, TENANT, raw)
    assert planned.plan.edits == ()
    sent = json.loads(planned.body())
    assert 600 <= sent[name] < 6_000
    assert sent[name] + planned.plan.after.tokens <= 8_000
    assert sent["messages"] == json.loads(raw)["messages"]
    assert planned.reasons == {"clamp_reply": 1}


async def test_a_reply_limit_may_be_set_from_outside():
    planned = await planner().plan(CHAT_COMPLETIONS, TENANT, body(run(3), max_tokens=500))
    assert json.loads(planned.with_reply(300).body())["max_tokens"] == 300
    unsaid = await planner().plan(CHAT_COMPLETIONS, TENANT, body(run(3)))
    assert json.loads(unsaid.with_reply(300).body())["max_tokens"] == 300
    assert json.loads(unsaid.with_reply(300).body())["messages"] == run(3)
    assert unsaid.with_reply(300).with_reply(400).reply_tokens == 300


async def test_a_second_plan_is_at_most_as_large_as_its_goal():
    first = await planner().plan(CHAT_COMPLETIONS, TENANT, body(run(80)))
    second = await planner().again(first, first.inputs.terms._replace(goal_tokens=2_000))
    assert second.plan.after.tokens <= 2_000 < first.plan.after.tokens
    assert second.plan.fits


async def test_while_nothing_can_be_kept_what_fits_is_not_cut_and_notices_say_that_it_is_lost():
    long = "a long line of output\n" * 3_000
    fits = await unkept(planner(100_000), body([user(), *exchange([long])]))
    assert not fits.changed
    cut = await unkept(planner(8_000), body([user(), *exchange([long])]))
    assert cut.plan.fits
    assert b"could not be kept" in cut.body()


async def test_a_request_that_came_measured_larger_has_less_room():
    assert not (await planner(ratio=(1.0, True)).plan(CHAT_COMPLETIONS, TENANT, body(run(20)))).changed
    assert (await planner(ratio=(2.0, True)).plan(CHAT_COMPLETIONS, TENANT, body(run(20)))).changed


async def test_tools_take_up_room():
    many = [{"type": "function", "function": {"name": f"tool_{n}", "description": "words " * 50}} for n in range(60)]
    assert not (await planner().plan(CHAT_COMPLETIONS, TENANT, body(run(20)))).changed
    assert (await planner().plan(CHAT_COMPLETIONS, TENANT, body(run(20), tools=many))).changed


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"messages": 1}', b"\xff"])
async def test_what_is_no_chat_request_is_malformed(raw):
    with pytest.raises(MalformedRequest):
        await planner().plan(CHAT_COMPLETIONS, TENANT, raw)


async def test_tenants_share_nothing():
    remembering = planner()
    await remembering.plan(CHAT_COMPLETIONS, b"one", body(run(5)))
    assert (await remembering.plan(CHAT_COMPLETIONS, b"two", body(run(6)))).known_messages == 0
    assert (await remembering.plan(CHAT_COMPLETIONS, b"one", body(run(6)))).known_messages > 0
    nearly = await remembering.plan(CHAT_COMPLETIONS, b"three", turn_body(run(6), clock=CLOCKS[1]))
    assert nearly.known_messages == 0


async def test_an_exact_tokenizer_counts_when_the_estimate_comes_near_the_room():
    exact = planner(8_000, tokenizer="o200k_base")
    assert (await exact.plan(CHAT_COMPLETIONS, TENANT, body(run(2)))).inputs.counted_by == "bytes"
    assert (await exact.plan(CHAT_COMPLETIONS, TENANT, body(run(80)))).inputs.counted_by == "o200k_base"


@pytest.mark.parametrize(("exchanges", "counted_by"), [(30, "bytes"), (34, "o200k_base")])
async def test_what_fills_less_than_two_thirds_of_the_room_is_estimated_whatever_its_bytes(exchanges, counted_by):
    raw = body(run(exchanges, 500), model="gpt-4o")  # 2 613 tokens each; two thirds are 81 749
    planned = await model_planner(128_000).plan(CHAT_COMPLETIONS, TENANT, raw)
    assert planned.inputs.counted_by == counted_by
    assert planned.body() == raw


async def test_a_conversation_that_has_been_counted_is_not_estimated_again():
    remembering = model_planner(16_000)
    plans = [await remembering.plan(CHAT_COMPLETIONS, TENANT, body(run(count))) for count in (10, 16, 40, 39)]
    assert [planned.inputs.counted_by for planned in plans] == ["bytes", "bytes", "o200k_base", "o200k_base"]


async def test_no_reply_limit_is_lowered_by_an_estimate():
    raw = body(run(40), max_tokens=14_000)
    planned = await model_planner(24_000).plan(CHAT_COMPLETIONS, TENANT, raw)
    assert (planned.inputs.counted_by, planned.reasons) == ("o200k_base", {"clamp_reply": 1})
    fits = await model_planner(24_000).plan(CHAT_COMPLETIONS, TENANT, body(run(40), max_tokens=500))
    assert (fits.inputs.counted_by, fits.reasons) == ("bytes", {})


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        ("gpt-oss-120b", None),  # servers of one's own cut silently, and an exact count proves that
        ("mine", "o200k_base"),  # usage shows how far that vocabulary is from the model's
    ],
)
async def test_beyond_64_kb_a_model_whose_counter_or_server_is_not_certain_is_counted_exactly(model, tokenizer):
    sure = Planner(
        Pipelines(Settings()), Models(lambda *_: ModelProfile(model, 128_000, tokenizer=tokenizer), (1.0, True))
    )
    short = await sure.plan(CHAT_COMPLETIONS, TENANT, body(run(10, 500)))
    long = await sure.plan(CHAT_COMPLETIONS, TENANT, body(run(12, 500)))
    assert (short.inputs.counted_by, long.inputs.counted_by) == ("bytes", "o200k_base")


def turn_body(history, *, clock="", task="", last="", **members):
    """A request whose agent writes some of its messages anew in each turn."""
    written = [dict(message) for message in history]
    written[0]["content"] += clock
    written[1]["content"] += task
    written[-1]["content"] += last
    return json.dumps({**members, "model": "m", "messages": written, "tools": TOOLS}).encode()


CLOCKS = [f" It is 16:{minute:02}." for minute in range(10, 25)]
MORE = 3
"""Exchanges in each turn."""
ANEW = {
    "clock": lambda clock: {"clock": clock},
    "task": lambda clock: {"task": clock},
    "both": lambda clock: {"clock": clock, "task": clock},
    "metadata": lambda clock: {"metadata": {"time": clock}},
    "last": lambda clock: {"last": clock},
    "all": lambda clock: {"clock": clock, "task": clock, "last": clock, "user": clock},
}


@pytest.mark.parametrize("written", ANEW)
@pytest.mark.parametrize("window", [8_000, 100_000])
async def test_what_an_agent_writes_anew_in_each_turn_changes_no_plan_and_leaves_the_rest_known(written, window):
    remembering = planner(window)
    for turn, clock in enumerate(CLOCKS):
        raw = turn_body(run(10 + MORE * turn), **ANEW[written](clock))
        again = await remembering.plan(CHAT_COMPLETIONS, TENANT, raw)
        anew = await planner(window).plan(CHAT_COMPLETIONS, TENANT, raw)
        assert again.body() == anew.body()
        assert again.plan == anew.plan
        if turn:
            assert again.known_messages >= 2 + 2 * (10 + MORE * (turn - 1)) - 1
    assert len(remembering._memory._kept) == 1, "one conversation, in one form"


@pytest.mark.parametrize(
    "clock",
    [
        " It is a quarter past nine.",  # longer
        " See name_b in src/two.py.",  # other names
    ],
)
async def test_a_system_text_that_may_matter_to_what_is_cut_starts_anew(clock):
    remembering = planner()
    for count, told_now in ((60, " See name_a in src/one.py."), (62, clock)):
        raw = turn_body(run(count), clock=told_now)
        again = await remembering.plan(CHAT_COMPLETIONS, TENANT, raw)
        assert again.plan == (await planner().plan(CHAT_COMPLETIONS, TENANT, raw)).plan


async def test_more_than_two_other_messages_make_another_conversation():
    remembering, history = planner(), run(9)
    await remembering.plan(CHAT_COMPLETIONS, TENANT, turn_body(history))
    changed = [dict(message) for message in history]
    for index in (0, 1, 3):
        changed[index]["content"] = "other words"
    assert (await remembering.plan(CHAT_COMPLETIONS, TENANT, turn_body(changed, user="b"))).known_messages == 0


async def test_only_a_request_that_may_not_fit_waits_for_its_window_to_be_known():
    models = []

    async def settle(model, _, *, is_cut):
        models.append((model, is_cut))
        return False

    models_of_one = Models(lambda model, _: ModelProfile(model, 8_000, tokenizer="bytes"), settle=settle)
    one = Planner(Pipelines(Settings()), models_of_one)
    await one.plan(CHAT_COMPLETIONS, TENANT, body([user("x" * 2_000)]), looking_up=True)
    assert models == []
    await one.plan(CHAT_COMPLETIONS, TENANT, body([user("x" * 9_000)]), looking_up=True)
    assert models == [("m", False)]
    await one.plan(CHAT_COMPLETIONS, TENANT, body([user("long " * 20_000)]), looking_up=True)
    assert models[1:] == [("m", True)]
