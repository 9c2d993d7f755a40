from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import TEXTS, notices

from proxy.core.artifact import Artifact
from proxy.core.models import AgentFileAccess
from proxy.core.notices import MARK, UNNAMED, ArtifactAccess, Notices, PageSize, Resume, as_text, is_ours
from proxy.core.text import Direction, ExcerptLimits, count_lines, excerpt, utf8_length

KEPT = Artifact(b"content", "sh")


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("/data/kept", f"/data/kept/{KEPT.id}"),
        ("/data/kept/", f"/data/kept/{KEPT.id}"),
        ("kept", f"kept/{KEPT.id}"),
        (r"C:\kept", rf"C:\kept\{KEPT.id}"),
        ("C:\\kept\\", rf"C:\kept\{KEPT.id}"),
        (r"\\host\share/kept", rf"\\host\share/kept/{KEPT.id}"),
    ],
)
def test_a_path_is_written_as_the_system_of_the_agent_writes_paths(folder, path):
    assert ArtifactAccess(folder).path_of(KEPT) == path


def test_what_is_not_known_of_a_client_is_not_named_to_it():
    assert (UNNAMED.path_of(KEPT), UNNAMED.url_of(KEPT)) == (None, None)
    assert ArtifactAccess(url="https://h/artifacts").url_of(KEPT) == f"https://h/artifacts/{KEPT.id}"
    assert ArtifactAccess(url="https://h/artifacts").path_of(KEPT) is None


LANGUAGES = st.sampled_from(["en", "zh"])
SHOWN = {
    "en": re.compile(r"([\d,]+) of ([\d,]+) lines, ([\d,]+) of ([\d,]+) bytes of this text are shown: (.*?)\."),
    "zh": re.compile(r"此文本共 ([\d,]+) 行、([\d,]+) 字节，此处显示 ([\d,]+) 行、([\d,]+) 字节：(.*?)。"),
}
thorough = settings(max_examples=150, deadline=None)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def numbers_in(text: str, language: str) -> tuple[int, int, int, int, str]:
    """Kept lines, lines, kept bytes, bytes, parts, as the notice of an excerpt says them."""
    one, two, three, four, parts = SHOWN[language].search(text[text.rindex(MARK) :]).groups()
    counts = (one, two, three, four) if language == "en" else (three, one, four, two)
    return (*map(number, counts), parts)


@given(TEXTS, LANGUAGES, st.sampled_from(Direction), st.integers(0, 3_000), st.integers(0, 400))
@thorough
def test_the_numbers_in_a_notice_are_true(text, language, direction, max_bytes, max_lines):
    shown = excerpt(text, ExcerptLimits(max_lines, max_bytes, None, direction))
    artifact = Artifact(text.encode("utf-8", "surrogatepass"))
    reported = notices(language).truncated(shown, artifact, ())
    kept_lines, lines, kept_bytes, size, parts = numbers_in(reported.replace("\ud800", "?"), language)
    assert (lines, size) == (count_lines(text), utf8_length(text))
    assert (kept_lines, kept_bytes) == (shown.kept_lines, shown.kept_bytes)
    words = {"en": ("its beginning", "tell of failures", "its end"), "zh": ("开头", "报错", "结尾")}[language]
    assert [word in parts for word in words] == [bool(shown.head), bool(shown.rescued), bool(shown.tail)]
    count = re.search(r"(\d[\d,]*)", parts)
    assert (number(count.group(1)) if count else 0) == len(shown.rescued)


@given(TEXTS, LANGUAGES, st.sampled_from(Direction), st.integers(0, 3_000))
@thorough
def test_the_text_surrounds_its_notice_and_the_way_back_names_the_first_missing_line(
    text, language, direction, max_bytes
):
    shown = excerpt(text, ExcerptLimits(2_000, max_bytes, None, direction))
    artifact = Artifact(text.encode("utf-8", "surrogatepass"))
    reported = notices(language).truncated(shown, artifact, ())
    assert as_text(shown.head + MARK, language).removesuffix(MARK) in reported
    assert reported.removeprefix(as_text(MARK, language).removesuffix(MARK)).startswith(shown.head)
    assert reported.endswith(shown.tail)
    assert f"/data/tool-output/{artifact.id}" in reported
    first, last = re.search(r"sed -n '(\d+),(\d+)p'", reported[len(shown.head) :]).groups()
    assert int(last) == int(first) + 80
    if "…" not in shown.head:
        lines_before = shown.head.count("\n")
        assert int(first) == lines_before + 1
        assert (
            "\n".join(text.split("\n")[:lines_before]) + "\n" * bool(lines_before)
            == shown.head[: shown.head.rfind("\n") + 1]
        )


@pytest.mark.parametrize(
    "text",
    ["x" * 200_000, "first\n" + "中文" * 60_000, "".join(f"{'x' * 50_000}{n}\n" for n in range(9))],
    ids=["one line", "Chinese", "long lines"],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_long_lines_are_read_on_by_bytes_as_a_page_of_lines_would_be_cut_at_the_same_place(text, language):
    shown = excerpt(text, ExcerptLimits())
    reported = notices(language).truncated(shown, Artifact(text.encode()), ())
    assert "sed -n" not in reported
    first, size = map(int, re.search(r"tail -c \+(\d+) '/data/[^']+' \| head -c (\d+)", reported).groups())
    before = text.encode()[: first - 1].decode()
    assert text.startswith(before)
    assert shown.head.rpartition("\n")[2].partition(" […")[0] == before.rpartition("\n")[2]
    assert ExcerptLimits().admit(text.encode()[first - 1 :][:size].decode(errors="replace"))


def test_other_tools_are_told_the_byte_at_which_a_long_line_goes_on():
    shown = excerpt("x" * 200_000, ExcerptLimits())
    reported = notices(reach=AgentFileAccess.PAGE).truncated(shown, Artifact(b"x"), ())
    assert f"It goes on at byte {len(shown.head.partition('[')[0].rstrip(' …')) + 1:,} of line 1" in reported


URL = "http://proxy:8787/artifacts"
ELSEWHERE = ArtifactAccess(None, URL, ("Authorization: Bearer $OPENAI_API_KEY",))
CUT = Artifact(b"a\n" * 10, "bash")
FROM_3 = Resume.between("a\n" * 2, "a\n" * 8, PageSize())


HERE = ArtifactAccess("/d", URL)
TOOL = ArtifactAccess(None, URL, (), True)
CURL = f"curl -s '{URL}/{CUT.id}?lines=3-83'"
WITH_A_KEY = CURL.replace("-s", '-s -H "Authorization: Bearer $OPENAI_API_KEY"')
OUR_TOOL = f'read_artifact(id="{CUT.id}", lines="3-83")'
SED = f"sed -n '3,83p' '/d/{CUT.id}'"


def kept_in(place):
    """The place of the whole in both languages."""
    return f" The whole is kept in {place}.", f" 完整内容保存在 {place}。"


def kept_here(english, chinese):
    """The place in a folder, and how to go on reading there."""
    return tuple(f"{words} {more}" for words, more in zip(kept_in(f"/d/{CUT.id}"), (english, chinese), strict=True))


def read_on(command):
    return f" The whole is kept; to go on reading: {command}", f" 完整内容已保存，继续阅读：{command}"


@pytest.mark.parametrize(
    ("way", "reach", "words"),
    [
        (
            ArtifactAccess("/d", URL, ELSEWHERE.key_headers, True),
            AgentFileAccess.SHELL,
            kept_here(f"To go on reading: {SED}", f"继续阅读：{SED}"),
        ),
        (
            HERE,
            AgentFileAccess.PAGE,
            kept_here(
                "Read or search that file in parts, from line 3 on, 81 lines at a time.",
                "可从第 3 行起分段读取或搜索该文件，每次 81 行。",
            ),
        ),
        (
            HERE,
            AgentFileAccess.SUBAGENT,
            kept_here(
                "Give that file to a sub-agent and ask it for what you need.", "可让子代理处理该文件并返回所需信息。"
            ),
        ),
        (ELSEWHERE, AgentFileAccess.SHELL, read_on(WITH_A_KEY)),
        (ArtifactAccess(None, URL), AgentFileAccess.SHELL, read_on(CURL)),
        (TOOL, AgentFileAccess.NOTHING, read_on(OUR_TOOL)),
        (ELSEWHERE, AgentFileAccess.NOTHING, kept_in(f"{URL}/{CUT.id}")),
        (HERE, AgentFileAccess.NOTHING, kept_in(f"/d/{CUT.id}")),
        (ArtifactAccess(), AgentFileAccess.SHELL, kept_in(CUT.id)),
    ],
)
def test_only_a_way_that_is_open_to_this_client_is_named(way, reach, words):
    assert tuple(Notices(language, way, reach).way_back(CUT, FROM_3) for language in ("en", "zh")) == words
    reported = [
        ours
        for language in ("en", "zh")
        for notes in [Notices(language, way, reach)]
        for ours in (
            notes.truncated(excerpt("a\n" * 10, ExcerptLimits(2, 10)), CUT, ()),
            notes.response_text(CUT, FROM_3),
        )
    ] + [Notices("en", way, reach).omission_note(CUT, 3, 400)]
    assert all(is_ours(text) for text in reported)
    assert words[0] in reported[1]
    assert is_ours(Notices("zh", way, reach).response_text(CUT, FROM_3, brief=True))


def test_messages_that_are_left_out_are_searched_where_no_file_is_in_sight():
    assert f"to search them: curl -s -H \"Authorization: Bearer $OPENAI_API_KEY\" '{URL}/{CUT.id}?grep=REGEX'" in (
        Notices("en", ELSEWHERE, AgentFileAccess.SHELL).omission_note(CUT, 3, 400)
    )
    assert f'搜索：read_artifact(id="{CUT.id}", grep="REGEX")' in (
        Notices("zh", ArtifactAccess(None, URL, (), True)).omission_note(CUT, 3, 400)
    )


@pytest.mark.parametrize(("language", "words"), [("en", "to search them: "), ("zh", "搜索：")])
@pytest.mark.parametrize("reach", [AgentFileAccess.SHELL, AgentFileAccess.PAGE, AgentFileAccess.SUBAGENT])
def test_omitted_messages_are_searched_in_their_file_with_context(language, words, reach):
    note = Notices(language, ArtifactAccess("/d", URL), reach, shell=True).omission_note(CUT, 3, 400)
    files = '"${f##*/}" $(grep -m1 -oE \'tool_messages_.{21}\' "$f")'
    command = f"f='/d/{CUT.id}'; (cd \"${{f%/*}}\"; grep -oE '.{{0,200}}REGEX.{{0,200}}' {files})"
    assert f"{words}{command}" in note
    assert note.count(CUT.id) == 1


def test_a_file_reader_is_offered_our_tool_for_lines_that_it_would_cut_itself():
    shown, way = excerpt("x" * 200_000, ExcerptLimits()), ArtifactAccess("/d", URL, (), True)
    reported = Notices("en", way, AgentFileAccess.PAGE).truncated(shown, CUT, ())
    assert f'read_artifact(id="{CUT.id}", lines="1:{len(shown.head)}-81")' in reported


def test_code_of_an_agent_finds_the_path_where_there_is_one():
    assert Notices("en", ArtifactAccess("/d", URL)).place_of(CUT) == f"/d/{CUT.id}"
    assert Notices("en", ELSEWHERE).place_of(CUT) == f"{URL}/{CUT.id}"


@pytest.mark.parametrize(("language", "words"), [("en", "could not be kept"), ("zh", "未能保存")])
def test_content_that_could_not_be_stored_is_reported_as_gone_without_a_place(language, words):
    lost = notices(language, kept=False)
    artifact = Artifact(b"a" * 500)
    reported = [
        lost.truncated(excerpt("a" * 500, ExcerptLimits(9, 50)), artifact, ()),
        lost.omission_note(artifact, 3, 400),
        lost.response_text(artifact, FROM_3),
    ]
    assert all(words in text and artifact.id not in text for text in reported)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_note_says_how_many_messages_are_gone_where_they_are_and_what_they_were_about(language):
    artifact = Artifact(b"[]", suffix="json")
    thread = [("asked", "Fix it:\nf()"), ("said", "I look."), ("done", "sh ls"), ("asked", "And now?")]
    lines = [("src/a.py", ["def parse_b():", "…", "    return 3"]), ("", ["of no file"])]
    note = notices(language).omission_note(artifact, 1_234, 56_789, thread, lines, "tool", "sh")
    ends = {"en": "end of the note; the result of sh follows", "zh": "说明到此结束；以下是 sh 的结果"}[language]
    assert note.startswith(MARK)
    assert note.endswith(f"\nsrc/a.py:\ndef parse_b():\n…\n    return 3\nof no file\n{MARK}{ends}]\n")
    place = f"/data/tool-output/{artifact.id}"
    assert place in note.partition("\n")[0], "in the line of the mark, by which it is recognised"
    for piece in ("1,234", "56,789", place, "\n- Fix it:\n  f()\n- And now?\n", "\n> I look.\n- sh ls\n"):
        assert piece in note
    assert notices(language).omission_note(artifact, 1, 2).count("\n") == 1


@given(
    TEXTS, LANGUAGES, st.sampled_from(AgentFileAccess), st.lists(st.sampled_from(["src/a.py", "parse_b"]), unique=True)
)
@thorough
def test_our_own_notices_are_recognised(text, language, reach, names):
    artifact = Artifact(text.encode("utf-8", "surrogatepass"), "read_file")
    ours = notices(language, reach)
    assert is_ours(ours.truncated(excerpt(text, ExcerptLimits(50, 500)), artifact, names))
    lines = [(name, [text[:300]]) for name in names]
    assert is_ours(ours.omission_note(artifact, 3, 5, [("asked", text[:300]), ("done", text[:300])], lines))
    assert is_ours(ours.response_text(artifact, FROM_3))


@pytest.mark.parametrize(
    "foreign",
    [
        "[context-proxy: hello]",
        "[context-proxy: see tool_ls_12.txt]",
        "tool_ls_0123456789abcdef.txt",
        "[context-proxy: \ntool_ls_0123456789abcdef.txt]",
        "[other-proxy: kept in /d/tool_ls_0123456789abcdef.txt]",
        "[context-proxy: tool_ls_0123456789ABCDEF.txt]",
        "Retrieve more: hash=0123456789abcdef",
        "",
    ],
)
def test_the_notices_of_others_are_not_ours(foreign):
    assert not is_ours(foreign)


@pytest.mark.parametrize("repeated", [MARK, "tool_", "tool_ls_0123456789abcde", "a_"])
def test_a_text_that_repeats_what_a_notice_is_made_of_is_read_once(repeated):
    """Each of these would take hours if every repetition were followed to the end of the text."""
    assert not is_ours(MARK + repeated * (1_000_000 // len(repeated)))


@given(TEXTS)
@thorough
def test_no_other_text_is_ours(text):
    assert not is_ours(text)


WANTS_STORE = ArtifactAccess("/d", tool_wants="`store: false`")


@pytest.mark.parametrize(
    ("way", "reach", "words"),
    [
        (ArtifactAccess("/d"), AgentFileAccess.SHELL, kept_in(f"/d/{CUT.id}")),
        (
            ArtifactAccess(None, URL),
            AgentFileAccess.SHELL,
            (f" To get the whole: curl -s '{URL}/{CUT.id}'", f" 获取完整内容：curl -s '{URL}/{CUT.id}'"),
        ),
        (TOOL, AgentFileAccess.NOTHING, kept_in(f"{URL}/{CUT.id}")),
        (
            WANTS_STORE,
            AgentFileAccess.NOTHING,
            kept_here(
                "A client that sends `store: false` gets a tool that reads it.",
                "客户端发送 `store: false` 即可获得读取它的工具。",
            ),
        ),
        (WANTS_STORE, AgentFileAccess.SHELL, kept_in(f"/d/{CUT.id}")),
    ],
)
def test_what_is_not_shown_at_all_is_named_whole(way, reach, words):
    assert tuple(Notices(language, way, reach).whole(CUT) for language in ("en", "zh")) == words


@pytest.mark.parametrize(
    ("before", "tool", "ends"),
    [
        ("", "", "end of the note]"),
        ("tool", "sh", "end of the note; the result of sh follows]"),
        ("tool", "sh]\n[run it", "end of the note; the result of a tool follows]"),
        ("user", "", "end of the note; the user's message follows]"),
        ("assistant", "", "end of the note; your message follows]"),
    ],
)
def test_a_note_ends_with_a_line_that_names_what_follows(before, tool, ends):
    note = Notices("en", UNNAMED).omission_note(CUT, 3, 400, [("asked", "Go")], (), before, tool)
    assert note.endswith(f"\n- Go\n{MARK}{ends}\n")


def test_a_chat_that_has_the_tool_and_no_other_is_told_a_path_only_to_what_the_tool_does_not_read():
    way = ArtifactAccess("/d", URL, (), True)
    assert Notices("en", way).place_of(CUT) == CUT.id
    assert "/d/" not in Notices("en", way).omission_note(CUT, 3, 400)
    assert f"/d/{CUT.id}" in Notices("en", way).whole(CUT)
