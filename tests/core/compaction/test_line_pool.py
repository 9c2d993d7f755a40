from __future__ import annotations

import json
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import TEXTS, conversation, exchange, spelled, user, valid_histories
from support.work import bytecodes_of

from proxy.core.artifact import Artifact
from proxy.core.compaction.line_pool import MAX_LINES, LinePool, traces_of
from proxy.core.conversation import TrackedMessage
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage


def calling(*arguments):
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "t", "arguments": text}}
        for n, text in enumerate(arguments)
    ]
    return ChatMessage.read(spelled({"role": "assistant", "tool_calls": calls}))


COUNTER = ByteClassCounter()


def entries(*messages):
    return [TrackedMessage.of(n, message, "", COUNTER) for n, message in enumerate(conversation(list(messages)))]


def reading(text, path="src/a.py", **arguments):
    return exchange([text], tool="Read", arguments=json.dumps({"file_path": path, **arguments}))


def editing(old, new, path="src/a.py"):
    return exchange([""], tool="Edit", arguments=json.dumps({"file_path": path, "old_string": old, "new_string": new}))


def writing(text, path="src/a.py"):
    return exchange([""], tool="Write", arguments=json.dumps({"file_path": path, "content": text}))


def quoted_lines(*gone, kept=(), known=(), room=1_000):
    pool = LinePool()
    for messages in gone:
        pool = pool.extended(entries(*messages))
    return pool.quoted(entries(*kept), known, room, COUNTER)


PATCH = """*** Begin Patch
*** Update File: src/a.py
@@ def f():
 old_context()
-old_value = 1
+new_value = 2
*** Add File: b.py
+all_of_it()
"""
DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old_value = 1\n+new_value = 2\n"


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [
        ({"input": PATCH}, [("src/a.py", ["old_context()", "new_value = 2"]), ("b.py", ["all_of_it()"])]),
        ({"command": DIFF}, [("x.py", ["new_value = 2"])]),
        ({"path": "a.py", "edit": {"old": "old_value = 1", "new": "new_value = 2"}}, [("a.py", ["new_value = 2"])]),
        ({"path": "a.py", "contents": "all_of_it()", "force": True}, [("a.py", ["all_of_it()"])]),
        ({"pattern": "all_of_it", "path": "a.py"}, []),
    ],
    ids=["patch", "diff", "member", "file", "pattern"],
)
def test_what_a_call_writes_is_quoted_under_the_file_that_it_names(arguments, quoted):
    assert quoted_lines(exchange([""], tool="t", arguments=json.dumps(arguments))) == quoted


def test_the_work_grows_with_the_texts_of_one_source_and_not_with_its_square():
    def work(texts):
        gone = entries(
            *(message for n in range(texts) for message in reading(f"value_{n} = 1\nother_{n} = 2\nlast_{n} = 3"))
        )
        return bytecodes_of(lambda: LinePool().extended(gone)).total()

    assert work(2_400) < 2.3 * work(1_200)


def test_lines_are_listed_below_their_path_without_their_numbers():
    numbered = "     1→def first_function():\n     2→    return first_value\n"
    found = quoted_lines([*reading(numbered), *exchange(["src/b.py:12:def second_function():"], tool="Grep")])
    assert found == [
        ("src/a.py", ["def first_function():", "    return first_value"]),
        ("src/b.py", ["def second_function():"]),
    ]


def test_an_id_that_returns_names_the_newer_call():
    caller, result = exchange(["def another_function():"])
    del caller["tool_calls"][0]["function"]["arguments"]
    assert quoted_lines([*reading("def one_function():"), caller, result], room=1_000) == [
        ("src/a.py", ["def one_function():"]),
        ("", ["def another_function():"]),
    ]


def test_text_that_an_edit_replaced_is_not_quoted_and_its_new_text_is():
    read = reading("def one_function():\n    stale_value = 1\n    return stale_value\ndef two_function():")
    edit = editing("    stale_value = 1\n    return stale_value", "    fresh_value = 2\n    return fresh_value")
    expected = ["def one_function():", "    fresh_value = 2", "    return fresh_value", "def two_function():"]
    assert quoted_lines([*read, *edit]) == quoted_lines(read, edit) == [("src/a.py", expected)]


def test_an_edit_still_in_the_conversation_makes_lines_stale_too():
    read = reading("def one_function():\n    stale_value = 1")
    assert quoted_lines(read, kept=editing("    stale_value = 1", "x")) == [("src/a.py", ["def one_function():"])]
    assert quoted_lines(read, kept=writing("x")) == []


def test_a_file_that_was_written_anew_has_no_older_lines():
    assert quoted_lines(reading("def one_function():"), writing("def new_function():")) == [
        ("src/a.py", ["def new_function():"])
    ]


def test_a_line_that_was_read_twice_is_quoted_once():
    text = "def one_function():\ndef two_function():"
    assert quoted_lines(reading(text), reading(text)) == [("src/a.py", text.split("\n"))]


def test_lines_that_follow_a_gap_are_marked():
    lines = [f"def function_{n}():" for n in range(3)]
    found = quoted_lines(reading("\n".join(lines)), known={"function_1"}, room=22)
    assert found in ([("src/a.py", [lines[0], "…", lines[2]])], [("src/a.py", lines[:2])], [("src/a.py", lines[1:])])
    apart = "\n".join([lines[0], "function_1 " * 40, lines[2]])
    assert quoted_lines(reading(apart)) == [("src/a.py", [lines[0], lines[2]])], "a line that is too long is data"


def test_names_that_the_agent_used_come_first():
    pages = [reading("\n".join(f"other_name_{n}_{i} = value" for i in range(9)), f"src/{n}.py") for n in range(9)]
    wanted = reading("def wanted_function(): pass", "src/w.py")
    search = exchange(["nothing"], tool="Bash", arguments=json.dumps({"command": "grep -rn wanted_function src"}))
    gone = [*wanted, *(message for page in pages for message in page), *search]
    assert ("src/w.py", ["def wanted_function(): pass"]) in quoted_lines(gone, room=60)


def test_a_users_words_are_not_quoted_but_tool_output_in_user_messages_is():
    assert quoted_lines([user("Please look at some_function")]) == []
    assert quoted_lines([user("Observation: some_function is here")]) == [("", ["Observation: some_function is here"])]


SECRETS = [
    "OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuv",
    "export GITHUB_TOKEN=ghp_0123456789abcdefghijABCDEFGHIJ",
    'password: "correct horse battery"',
    "aws_secret_access_key = wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    "AKIAIOSFODNN7EXAMPLE is the id",
    "Authorization: Bearer abcdef0123456789abcdef",
    "-----BEGIN RSA PRIVATE KEY-----",
    "postgres://admin:hunter22@db.example.org/main",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_text_that_looks_like_a_secret_is_never_quoted(secret):
    assert quoted_lines(reading(f"{secret} for_the_service\ndef harmless_function():")) == [
        ("src/a.py", ["def harmless_function():"])
    ]
    assert (
        quoted_lines(exchange(["harmless_output"], tool="Bash", arguments=json.dumps({"command": f"curl {secret}"})))
        == []
    )


@pytest.mark.parametrize(
    "line", ["token = self.next_token(position)", "def check_password(password: str) -> bool:", "secret_name: str"]
)
def test_code_about_secrets_is_quoted(line):
    assert quoted_lines(reading(line)) == [("src/a.py", [line])]


def test_our_notices_and_artifact_names_are_not_quoted():
    name = Artifact(b"x", "read_file").id
    assert quoted_lines(reading(f"[context-proxy: some_notice]\nsee {name} there\nplain_name here")) == [
        ("src/a.py", ["plain_name here"])
    ]


def test_the_pool_is_bounded_and_keeps_what_was_seen_last():
    pool = LinePool()
    for n in range(12):
        pool = pool.extended(entries(*reading("\n".join(f"name_{n}_{i} = 1" for i in range(400)), f"src/{n}.py")))
    assert sum(map(len, pool.sources.values())) == MAX_LINES
    assert list(pool.sources)[-1] == "src/11.py"
    assert pool.names.keys() == {line.text for lines in pool.sources.values() for line in lines}
    used = [f"used_name_{n}" for n in range(5_000)]
    assert len(pool.extended(entries({"role": "assistant", "content": " ".join(used)})).used) == 2_000


@given(valid_histories(), st.integers(0, 3_000), st.integers(1, 50))
def test_quoted_lines_are_omitted_ones_fit_the_room_and_are_deterministic(history, room, split):
    gone = entries(*history)
    pool = LinePool().extended(gone[:split]).extended(gone[split:])
    found = pool.quoted([], (), room, COUNTER)
    assert found == LinePool().extended(gone[:split]).extended(gone[split:]).quoted([], (), room, COUNTER)
    texts = [entry.whole.text() for entry in gone]
    for _, lines in found:
        for line in lines:
            # A patch or an argument inside JSON is quoted as it would be written.
            assert line == "…" or any(line in text or json.dumps(line)[1:-1] in text for text in texts)
    cost: dict[str, int] = {}
    for line in (line for lines in pool.sources.values() for line in lines):
        cost[line.text] = min(line.tokens, cost.get(line.text, line.tokens))
    assert sum(cost.get(line, 0) for _, lines in found for line in lines) <= room


@given(TEXTS)
def test_any_text_can_be_quoted(text):
    for _, lines in quoted_lines(reading(text)):
        assert lines


def test_lines_of_forty_exchanges_ago_are_quoted_while_newer_ones_leave_room():
    old = reading("def very_old_function():", path="src/old.py")
    texts = ["\n".join(f"value_{n}_{i} = 1" for i in range(30)) for n in range(40)]
    rest = [message for n, text in enumerate(texts) for message in reading(text, path=f"src/{n}.py")]
    assert ("src/old.py", ["def very_old_function():"]) in quoted_lines([*old, *rest], room=30_000)


def test_a_line_of_the_file_in_hand_counts_half_its_age():
    hand = reading("def first_function_here():", path="src/a.py")
    others = [message for n in range(27) for message in reading(f"value_{n} = 1", path=f"src/b{n}.py")]
    later = reading("def other_function_here():", path="src/c.py")
    last = [message for n in range(27, 29) for message in reading(f"value_{n} = 1", path=f"src/b{n}.py")]
    gone, known = [*hand, *others, *later, *last], {f"value_{n}" for n in range(29)}
    room = COUNTER.count("def other_function_here():") + COUNTER.count("src/c.py") + 5
    assert quoted_lines(gone, known=known, room=room) == [("src/c.py", ["def other_function_here():"])]
    kept = editing("x = 1", "y = 1", path="src/a.py")
    assert quoted_lines(gone, kept=kept, known=known, room=room) == [("src/a.py", ["def first_function_here():"])]


def test_lines_take_their_share_of_what_their_message_was_counted_and_are_not_counted_again():
    first, second = entries(*reading("def one_function():")), entries(*reading("def two_function():", path="src/b.py"))
    counter, pool = Mock(wraps=COUNTER), LinePool().extended(first).extended(second)
    assert pool.quoted([], (), 1_000, counter) == [
        ("src/a.py", ["def one_function():"]),
        ("src/b.py", ["def two_function():"]),
    ]
    assert {call.args[0] for call in counter.count.mock_calls} == {"src/a.py", "src/b.py"}


@given(st.text("abcdef 012_=", min_size=1).filter(str.strip), st.integers(1, 40))
def test_all_lines_of_a_message_together_are_about_what_it_was_counted(line, times):
    entry = entries({"role": "user", "content": "Observation:\n" + f"{line.rstrip()}\n" * times})
    lines = [line for lines in LinePool().extended(entry).sources.values() for line in lines]
    assert abs(sum(line.tokens for line in lines) - entry[0].whole_size.tokens) <= 2 * (times + 2)


def test_an_image_beside_a_line_does_not_make_it_dearer_than_a_token_a_character():
    parts = [{"type": "text", "text": "Observation: short_output"}, {"type": "image_url", "image_url": {"url": "x"}}]
    (lines,) = LinePool().extended(entries({"role": "user", "content": parts})).sources.values()
    assert [line.tokens for line in lines] == [1 + len("Observation: short_output")]


def test_a_cut_that_is_made_again_costs_no_second_reading():
    pool, gone = LinePool(), entries(*reading("def first_function():"))
    after = pool.extended(gone)
    assert pool.extended(list(gone)) is after
    other = entries(*reading("def second_function():"))
    assert pool.extended(other) == LinePool().extended(other) != after
    assert pool.extended([]) == LinePool().extended([])
    assert after.extended(gone) == LinePool().extended(gone).extended(gone)


def test_strings_in_lists_of_arguments_are_written_text_too():
    (trace,) = traces_of(calling('{"path": "a.py", "edits": [{"new_string": "one"}, {"new_string": "two"}]}'))
    assert (trace.source, trace.written) == ("a.py", ("one", "two"))


def test_a_plan_is_no_file_and_a_command_is_no_line_of_its_own():
    plan = {"explanation": "As it was agreed upon", "plan": [{"step": "Write the parser", "status": "pending"}]}
    (trace,) = traces_of(calling(json.dumps(plan)))
    assert (trace.source, trace.written, trace.plan) == ("", (), "Write the parser pending")
    command = "pytest -q tests/core/compaction/test_line_pool.py"
    (trace,) = traces_of(calling(json.dumps({"command": ["bash", "-lc", command]})))
    assert (trace.source, trace.written) == (command, ())
