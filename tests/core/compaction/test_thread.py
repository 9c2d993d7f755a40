from __future__ import annotations

from support.strategies import conversation, exchange, user

from proxy.core.compaction.thread import extended, fitting
from proxy.core.conversation.tracked_message import TrackedMessage
from proxy.core.tokens.counters import ByteClassCounter

COUNTER = ByteClassCounter()
KEY = "sk-" + "a1B2" * 8


def entries(*messages):
    return [TrackedMessage.of(n, message, "", COUNTER) for n, message in enumerate(conversation(list(messages)))]


def asked(*texts):
    return extended((), (), texts)


def told(thread, asked_tokens=10_000, step_tokens=10_000):
    return [text for _, text in fitting(thread, asked_tokens, step_tokens, COUNTER)]


def step(path, words=""):
    return entries(*exchange(["out"], arguments=f'{{"path": "{path}"}}', words=words))


def test_what_a_user_said_is_quoted_whole_with_its_lines():
    text = "Fix it:\n    def f():\n        pass\n\n" + "and mind the tests " * 100
    assert told(asked(text)) == [text.strip()]


def test_of_what_a_user_pasted_only_the_beginning_is_quoted_in_one_line():
    [quoted] = told(asked("A log\n  of " + "many words " * 300))
    assert quoted.startswith("A log of many words ")
    assert quoted.endswith(" …")
    assert len(quoted) <= 202


def test_the_newest_requests_are_whole_and_of_older_ones_the_beginnings_that_fit():
    requests = [f"request {n}: " + "word " * 80 for n in range(30)]
    quoted = told(asked(*requests), asked_tokens=600)
    whole = [text for text in quoted if len(text) > 210]
    assert whole == [text.strip() for text in requests[-len(whole) :]]
    assert 1 < len(whole) < len(quoted)
    assert quoted[-1] == requests[-1].strip()
    assert sum(map(COUNTER.count, quoted)) <= 600


def test_each_call_that_is_left_out_is_told_once_by_tool_and_path_where_it_was_made_last():
    gone = [*step("a.py"), *step("b.py"), *step("a.py")]
    assert told(extended((), gone, ())) == ["read_file b.py", "read_file a.py"]
    later = extended(extended((), gone, ()), step("b.py"), ())
    assert told(later) == ["read_file a.py", "read_file b.py"]


def test_a_long_command_is_told_by_its_beginning_and_a_call_without_arguments_by_its_tool():
    long = entries(*exchange(["out"], arguments='{"command": "' + "make it so " * 90 + '"}'))
    assert told(extended((), long, ())) == ["read_file " + ("make it so " * 90)[:110].strip()]
    bare = entries(*exchange(["out"], arguments="{}"))
    assert told(extended((), bare, ())) == ["read_file"]


def test_what_the_model_said_is_told_by_its_beginning_before_what_it_did():
    thread = extended((), step("a.py", words="I see.\nThe cause is " + "here and " * 60), ())
    said, done = told(thread)
    assert said.startswith("I see. The cause is here and")
    assert len(said) <= 302
    assert done == "read_file a.py"


def test_the_newest_steps_are_told_within_their_room_and_words_have_a_room_of_their_own():
    gone = [entry for n in range(100) for entry in step(f"src/file_{n}.py", words=f"Now file number {n}.")]
    quoted = told(extended((), gone, ()), step_tokens=100)
    assert quoted[-2:] == ["Now file number 99.", "read_file src/file_99.py"]
    for kind in ("Now", "read_file"):
        of_kind = [text for text in quoted if text.startswith(kind)]
        assert 4 < len(of_kind) < 20
        assert sum(map(COUNTER.count, of_kind)) <= 100


def test_nothing_that_looks_like_a_secret_or_names_an_artifact_is_quoted():
    name = "tool_sh_0123456789abcdef.txt"
    gone = [*step(f"curl -H {KEY}", words=f"The key is {KEY}"), *step(f"/kept/{name}")]
    thread = extended((), gone, [f"Use this:\n{KEY}\nplease", f"Read {name} again"])
    assert told(thread) == ["Use this:\n…\nplease", "Read … again"]
    assert told(asked(f"{KEY} " + "word " * 500)) == ["…"]


def test_what_is_remembered_is_bounded_and_the_newest_stays():
    thread = asked(*(f"request {n} " + "word " * 300 for n in range(300)))
    assert sum(len(text) for _, text in thread) <= 100_000
    assert thread[-1].text.startswith("request 299 ")


def test_without_room_nothing_is_told():
    assert told(extended((), step("a.py", words="I see."), ["Please."]), 0, 0) == []
    assert told(extended((), [*entries(user("x"))], ()), 100, 100) == []
