from __future__ import annotations

import json

from support.media_samples import image_part

from proxy.core.conversation.batch_media import before_a_user, done_again, with_media
from proxy.core.conversation.edit import Moved
from proxy.core.conversation.message import Carried
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import ByteClassCounter
from proxy.wire.chat_completions.message import ChatMessage

COUNTER = ByteClassCounter()
LAST = TrackedMessage.of(
    4, ChatMessage.read(b'{"role":"tool","tool_call_id":"c","content":"done"}'), "ls", COUNTER
)  # fmt: skip


def moved(number: int, spoken: str | None = None) -> Moved:
    return Moved((Carried(json.dumps(image_part(b"%d" % number)).encode()),), spoken)


def sent(entry):
    return [json.loads(message.raw) for message in entry.following]


def test_the_images_of_all_results_stand_in_one_user_message_behind_the_last_of_them():
    entry = with_media(LAST, [moved(1), moved(2)], COUNTER)
    (shown,) = sent(entry)
    assert shown["role"] == "user"
    assert shown["content"] == [image_part(b"1"), image_part(b"2")]
    assert entry.sent_size.tokens > LAST.sent_size.tokens
    assert entry.message is LAST.message


def test_nothing_stands_behind_a_batch_without_media():
    assert sent(with_media(LAST, [], COUNTER)) == []


def test_an_upstream_that_takes_no_user_right_after_a_result_gets_words_of_the_assistant_first_and_once():
    words, shown = sent(with_media(LAST, [moved(1, "Here it is."), moved(2, "Here too.")], COUNTER))
    assert (words["role"], words["content"]) == ("assistant", "Here it is.")
    assert shown["role"] == "user"


def test_before_a_user_message_the_words_stand_behind_the_images_too_and_the_head_stays():
    entry = with_media(LAST, [moved(1, "Here it is.")], COUNTER)
    followed = before_a_user(entry, COUNTER)
    assert [message["role"] for message in sent(followed)] == ["assistant", "user", "assistant"]
    assert followed.following[:2] == entry.following
    plain = with_media(LAST, [moved(1)], COUNTER)
    assert before_a_user(plain, COUNTER) is plain


def test_a_batch_that_is_prepared_anew_is_made_of_what_its_entries_have_moved():
    before = before_a_user(with_media(LAST, [moved(1, "Here it is.")], COUNTER), COUNTER)
    (again,) = done_again([before], COUNTER)
    assert sent(again) == []
    (untouched,) = done_again([LAST], COUNTER)
    assert untouched is LAST
