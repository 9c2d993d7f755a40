from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.planners import TENANT, body, planner, run
from support.strategies import exchange, system, user

from proxy.core.overflow import AttemptKind, Cure
from proxy.shell.planning import name_of_conversation, share_kept
from proxy.shell.telemetry import Recorder, RequestRecord
from proxy.shell.telemetry.metrics import Metrics
from proxy.wire.chat_completions import CHAT_COMPLETIONS, ChatMessage

MESSAGES = st.lists(st.binary(min_size=1, max_size=9).map(ChatMessage), max_size=6).map(tuple)


def sent(planned):
    record = RequestRecord("req", started=0.0)
    record.note_plan(planned)
    record.note_sent(1)
    return record


@given(MESSAGES.filter(bool), MESSAGES)
def test_the_share_is_that_of_the_bytes_up_to_the_first_difference(before, now):
    same = 0
    while same < min(len(before), len(now)) and before[same] == now[same]:
        same += 1
    kept, all_of_it = (sum(len(message.raw) for message in found) for found in (before[:same], before))
    assert share_kept(before, now) == kept / all_of_it


def test_a_conversation_has_one_name_for_its_tenant_and_another_for_every_other_tenant():
    begun, later = (CHAT_COMPLETIONS.parse(body(run(turns))).conversation.messages for turns in (1, 3))
    mine, theirs = (name_of_conversation(tenant, begun) for tenant in ("5eed", "beef"))
    assert mine
    assert mine == name_of_conversation("5eed", later) != theirs


async def test_while_nothing_is_cut_all_of_a_growing_conversation_is_kept():
    one = planner(128_000)
    shares = [
        sent(await one.plan(CHAT_COMPLETIONS, TENANT, body(run(turns, size=300)))).prefix_kept for turns in range(2, 14)
    ]
    assert shares == [None] + [1.0] * 11


async def test_a_cut_gives_up_the_prefix_and_the_next_turns_keep_the_new_one():
    one = planner(8_000, tokenizer="bytes")
    shares, changed = [], []
    for turns in range(10, 60):
        planned = await one.plan(CHAT_COMPLETIONS, TENANT, body(run(turns)))
        shares.append(sent(planned).prefix_kept)
        changed.append(planned.changed)
    cuts = [share for share in shares[1:] if share < 1.0]
    assert 1 <= len(cuts) <= 15
    assert all(0 <= share < 0.7 for share in cuts)
    assert any(changed)
    assert shares.count(1.0) > len(shares) / 2


async def test_a_request_with_a_changed_message_keeps_everything_before_it():
    one = planner(128_000)
    history = [system(), user("word " * 2_000), *exchange(["a result"], first_call=1), user("and now?")]
    sent(await one.plan(CHAT_COMPLETIONS, TENANT, body(history)))
    changed = [*history[:-1], user("or else?")]
    share = sent(await one.plan(CHAT_COMPLETIONS, TENANT, body(changed))).prefix_kept
    assert share is not None
    assert 0.9 < share < 1.0


async def test_another_conversation_with_the_same_beginning_has_no_request_before():
    one = planner(128_000)
    sent(await one.plan(CHAT_COMPLETIONS, TENANT, body(run(6))))
    other = [*run(1), user("something else " * 500), *exchange(["b"], first_call=90)]
    assert sent(await one.plan(CHAT_COMPLETIONS, TENANT, body(other))).prefix_kept is None


async def test_the_next_turn_is_held_against_what_was_sent_in_the_end():
    one = planner(128_000)
    first = await one.plan(CHAT_COMPLETIONS, TENANT, body(run(20)))
    record = sent(first)
    harsher = await one.again(first, first.inputs.terms._replace(goal_tokens=1_000))
    record.note_attempt(Cure(AttemptKind.EMERGENCY, goal_tokens=1_000), harsher)
    record.note_sent(1)
    following = sent(await one.plan(CHAT_COMPLETIONS, TENANT, body(run(21)))).prefix_kept
    assert following is not None
    assert following < 0.5, "the emergency send left out what is now present again"


async def test_an_original_that_went_up_in_the_end_is_what_the_next_turn_is_held_against():
    one = planner(8_000)
    first = await one.plan(CHAT_COMPLETIONS, TENANT, body(run(40)))
    assert first.changed
    record = sent(first)
    record.note_attempt(Cure(AttemptKind.ORIGINAL), first)
    record.note_sent(1)
    following = await one.plan(CHAT_COMPLETIONS, TENANT, body(run(41)))
    assert following.last_sent.messages == first.request.conversation.messages


async def test_a_second_send_is_held_against_the_turn_before_and_not_against_the_first_send():
    one = planner(128_000)
    sent(await one.plan(CHAT_COMPLETIONS, TENANT, body(run(20))))
    second = await one.plan(CHAT_COMPLETIONS, TENANT, body(run(21)))
    record = sent(second)
    assert record.prefix_kept == 1.0
    record.note_attempt(Cure(AttemptKind.ORIGINAL), second)
    record.note_sent(1)
    assert record.prefix_kept == 1.0


async def test_the_share_is_in_the_log_line_from_the_second_request_on():
    one, recorder, lines = planner(128_000), Recorder(Metrics()), []
    for turns in (20, 21):
        with capture_logs() as log:
            record = recorder.begin("req")
            record.note_plan(await one.plan(CHAT_COMPLETIONS, TENANT, body(run(turns))))
            record.note_sent(1)
            recorder.finish(record)
        lines += log
    assert [line.get("prefix_kept") for line in lines] == [None, 1.0]
