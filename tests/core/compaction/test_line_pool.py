from __future__ import annotations

import json
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import TEXTS, conversation, exchange, spelled, user, valid_histories

from proxy.core.artifact import Artifact
from proxy.core.compaction.line_pool import MAX_LINES, Line, LinePool, Sight, Trace, _bounded, _forget, traces_of
from proxy.core.conversation import TrackedMessage
from proxy.core.tokens import ByteClassCounter
from proxy.wire.chat_completions import ChatMessage


def calling(*arguments):
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "t", "arguments": text}}
        for n, text in enumerate(arguments)
    ]
    return ChatMessage.read(spelled({"role": "assistant", "tool_calls": calls}))


def traces(**arguments):
    return list(traces_of(calling(json.dumps(arguments))))


def test_an_edit_says_its_path_what_it_wrote_and_what_it_replaced():
    found = traces(file_path="src/a.py", old_string="one\ntwo", new_string="one\nthree", replace_all=False)
    assert found == [Trace("c0", "src/a.py", ("one\nthree",), ("one\ntwo",))]


def test_an_edit_inside_a_member_is_found_too():
    found = traces(path="src/a.py", edit={"old": "one\ntwo", "new": "one\nthree"})
    assert found == [Trace("c0", "src/a.py", ("one\nthree",), ("one\ntwo",))]


@pytest.mark.parametrize("name", ["content", "file_text", "contents"])
def test_a_file_that_is_written_anew_is_whole(name):
    assert traces(path="src/a.py", **{name: "one\ntwo"}) == [Trace("c0", "src/a.py", ("one\ntwo",), (), True)]


def test_a_command_is_listed_in_place_of_a_path():
    assert traces(command="ls   -l\tsrc", timeout=3)[0].source == "ls -l src"
    assert len(traces(command="x" * 500)[0].source) == 110


def test_a_long_path_keeps_its_end_which_names_the_file():
    path = "/home/a/.worktrees/" + "deep/" * 40 + "a.py"
    assert traces(file_path=path)[0].source == path
    assert traces(input=f"*** Begin Patch\n*** Update File: {path}\n+new\n")[0].source == path
    assert len(traces(path="x" * 900)[0].source) == 400


def test_the_items_of_a_list_are_a_plan_unless_they_look_like_a_secret_or_belong_to_a_file():
    steps = [{"content": "Read\nit", "status": "done"}, {"content": "Use sk-" + "a1B2" * 8}, {"content": "Test it"}]
    assert traces(explanation="why", plan=steps)[0].plan == "Read it done; Test it"
    assert traces(path="a.py", edits=[{"old": "one", "new": "two"}])[0].plan == ""
    assert traces(names=["one", "two"])[0].plan == ""
    assert len(traces(plan=[{"step": "word " * 5_000}])[0].plan) == 2_002


def test_written_text_is_quoted_however_short_but_flags_and_patterns_are_not():
    assert traces(file_path="a", new_string="x")[0].written == ("x",)
    assert traces(pattern="x", path="a")[0].written == ()


def test_content_without_a_path_is_no_file():
    assert traces(content="a note\nof two lines")[0].is_whole is False


def test_each_call_has_its_own_trace_and_what_is_no_json_is_its_own_source():
    found = list(traces_of(calling('{"path": "a.py"}', "not json", "[1]")))
    assert [(trace.call_id, trace.source) for trace in found] == [("c0", "a.py"), ("c1", "not json"), ("c2", "[1]")]


def test_a_patch_has_a_trace_for_each_file():
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@ def f():\n context\n-old\n+new\n*** Add File: b.py\n+all\n"
    expected = [Trace("c0", "src/a.py", ("context\nnew",), ("old",)), Trace("c0", "b.py", ("all",), ("",))]
    assert traces(input=patch) == expected


def test_a_unified_diff_has_one_too():
    diff = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"
    assert traces(command=diff) == [Trace("c0", "x.py", ("new",), ("old",))]


def test_a_message_without_calls_has_none():
    assert list(traces_of(ChatMessage.read(spelled({"role": "assistant", "content": "words"})))) == []


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


def test_the_agents_own_text_is_quoted_too():
    assert quoted_lines(writing("def written_function():")) == [("src/a.py", ["def written_function():"])]


def test_text_that_an_edit_replaced_is_not_quoted_and_its_new_text_is():
    read = reading("def one_function():\n    stale_value = 1\n    return stale_value\ndef two_function():")
    edit = editing("    stale_value = 1\n    return stale_value", "    fresh_value = 2\n    return fresh_value")
    expected = ["def one_function():", "    fresh_value = 2", "    return fresh_value", "def two_function():"]
    assert quoted_lines([*read, *edit]) == quoted_lines(read, edit) == [("src/a.py", expected)]


def test_an_edit_still_in_the_conversation_makes_lines_stale_too():
    read = reading("def one_function():\n    stale_value = 1")
    assert quoted_lines(read, kept=editing("    stale_value = 1", "x")) == [("src/a.py", ["def one_function():"])]
    assert quoted_lines(read, kept=writing("x")) == []


def test_a_call_that_replaces_nothing_compares_no_line():
    class Uncompared(str):
        __slots__ = ()

        def strip(self, chars=None, /):
            raise AssertionError

    sources = {"src/a.py": [(Line(Uncompared("def one_function():"), Sight(0, 1.0)),)]}
    assert _forget(sources, Trace("call", "src/a.py", written=("x",))) is None
    with pytest.raises(AssertionError):
        _forget(sources, Trace("call", "src/a.py", replaced=("y",)))


def test_the_work_grows_with_the_texts_of_one_source_and_not_with_its_square():
    looked_at: list[int] = []

    class Lines(list):
        def __iter__(self):
            looked_at.append(len(self))
            return super().__iter__()

    texts = [Lines([Line(f"line {number} of {text}", Sight(0, 1.0)) for number in range(3)]) for text in range(9_000)]
    found = _bounded({"": texts})
    assert [line.text for line in found[""]] == [line.text for text in texts[-1_000:] for line in list(text)]
    assert sum(looked_at[: -len(texts)]) <= 3 * MAX_LINES


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


def test_lines_of_the_file_in_hand_come_before_others():
    old = [*reading("def one_function():", "src/a.py"), *reading("def two_function():", "src/b.py")]
    for path in ("src/a.py", "src/b.py"):
        found = quoted_lines(old, kept=reading("x", path), room=14)
        assert [source for source, _ in found] == [path]


def test_what_was_read_last_comes_first():
    pages = [reading(f"def function_{n}(): pass", f"src/{n}.py") for n in range(30)]
    sources = [source for source, _ in quoted_lines(*pages, room=60)]
    assert sources
    assert sources == [f"src/{n}.py" for n in range(30 - len(sources), 30)]


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


class Counting(ByteClassCounter):
    """Remembers what it was asked."""

    texts: ClassVar[list[str]] = []

    def count(self, text):
        self.texts.append(text)
        return super().count(text)


def test_lines_take_their_share_of_what_their_message_was_counted_and_are_not_counted_again():
    first, second = entries(*reading("def one_function():")), entries(*reading("def two_function():", path="src/b.py"))
    counter, pool = Counting(), LinePool().extended(first).extended(second)
    assert pool.quoted([], (), 1_000, counter) == [
        ("src/a.py", ["def one_function():"]),
        ("src/b.py", ["def two_function():"]),
    ]
    assert {"src/a.py", "src/b.py"} == set(counter.texts)


@given(st.text("abcdef 012_=", min_size=1).filter(str.strip), st.integers(1, 40))
def test_all_lines_of_a_message_together_are_about_what_it_was_counted(line, times):
    entry = entries({"role": "user", "content": "Observation:\n" + f"{line.rstrip()}\n" * times})
    lines = [line for lines in LinePool().extended(entry).sources.values() for line in lines]
    assert abs(sum(line.tokens for line in lines) - entry[0].whole_size.tokens) <= 2 * (times + 2)


def test_an_image_beside_a_line_does_not_make_it_dearer_than_a_token_a_character():
    parts = [{"type": "text", "text": "Observation: short_output"}, {"type": "image_url", "image_url": {"url": "x"}}]
    (lines,) = LinePool().extended(entries({"role": "user", "content": parts})).sources.values()
    assert [line.tokens for line in lines] == [1 + len("Observation: short_output")]


def test_the_names_of_lines_are_kept_as_long_as_the_lines_are():
    pool = LinePool()
    for n in range(12):
        pool = pool.extended(entries(*reading("\n".join(f"name_{n}_{i} = 1" for i in range(400)), f"src/{n}.py")))
    assert pool.names.keys() == {line.text for lines in pool.sources.values() for line in lines}


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
