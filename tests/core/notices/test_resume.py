"""An agent that does what the notices say, with real commands on real files, sees the whole, whatever the limits."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.artifact import Artifact
from proxy.core.artifact_reading import Query, part_at, read
from proxy.core.conversation import prepared
from proxy.core.models import AgentFileAccess
from proxy.core.notices import MARK, ArtifactAccess, Notices, PageRead, PageSize, Resume, page_read, written_length
from proxy.core.retrieval_tool import RETRIEVAL_TOOL, wanted_by
from proxy.core.text import Direction, ExcerptLimits, LineIndex
from proxy.core.tokens import ByteClassCounter
from proxy.core.truncation import TruncateToolOutput
from proxy.wire.chat_completions import ChatMessage

NAME = "tool_run_0123456789abcdef.txt"
COUNTER = ByteClassCounter()
NUMBER = 8
"""Characters of one number in the texts below, with the sign after it."""
URL = "http://proxy:8787/artifacts"
ACCESS = {
    "shell": (AgentFileAccess.SHELL, "folder"),
    "reader": (AgentFileAccess.PAGE, "folder"),
    "curl": (AgentFileAccess.SHELL, "url"),
    "read_artifact": (AgentFileAccess.NOTHING, "tool"),
}
FRAMES = {
    "bare": "{}",
    "exit code": "Chunk ID: 5b1c\nProcess exited with code 0\nOriginal token count: 4000\nOutput:\n{}",
    "output": {"output": "{}", "exit_code": 0},
    "common": {"status": "ok", "data": "{}", "text": "done"},
    "common, inside": {"status": "ok", "data": {"stdout": "{}", "exit_code": 0}, "text": "done"},
}


def numbers(count, line_of):
    """Numbers of which every piece reveals its position; a line ends after `line_of(n)`."""
    return "".join(f"{n:07}" + ("\n" if line_of(n) else " ") for n in range(count))


def covered(shown, whole):
    """The characters of the whole that a result shows."""
    if shown.lstrip().startswith("{"):
        shown = shown.replace("\\n", "\n")
    shown = re.sub(r"^ *\d{1,6}→", "", shown, flags=re.MULTILINE)
    found = set()
    for run in re.finditer(r"(?:\d{7}[ \n])+", shown):
        begin = int(run[0][:7]) * NUMBER
        if not whole.startswith(run[0][:-1], begin):
            continue
        end = begin + len(run[0]) - (not whole.startswith(run[0], begin))  # a notice begins in a line of its own
        for back in range(1, NUMBER):  # what a page shows of a number that it begins or ends within
            if whole[begin - back : begin] == shown[run.start() - back : run.start()]:
                found.update(range(begin - back, begin))
            if whole[end : end + back] == shown[run.end() : run.end() + back]:
                found.update(range(end, end + back))
        found.update(range(begin, end))
    return found & set(range(len(whole)))


def framed(frame, page):
    if isinstance(frame, str):
        return frame.replace("{}", page)
    return json.dumps(
        {
            name: page if value == "{}" else {"stdout": page, "exit_code": 0} if isinstance(value, dict) else value
            for name, value in frame.items()
        }
    )


class Agent:
    """Reads on by one kind of access, and by nothing but what the notices say."""

    def __init__(self, folder, access, limits, frame="bare", language="en", suggested=None):
        """`suggested`: the limits that the notices know, if other limits than these decide."""
        self.reach, way = ACCESS[access]
        self.folder, self.access, self.frame = folder, access, FRAMES[frame]
        self.way = {
            "folder": ArtifactAccess(str(folder), URL, (), access == "reader"),
            "url": ArtifactAccess(None, URL),
            "tool": ArtifactAccess(tool=True),
        }[way]
        self.limits, self.step = limits, TruncateToolOutput(limits)
        self.notices = Notices(language, self.way, self.reach, page=PageSize.within(suggested or limits))
        self.reported = []
        self.unclear = 0 if frame in ("bare", "exit code") else 2 * NUMBER
        """Characters at the edges of a page that is written as JSON within JSON."""
        self.page_bytes = min(limits.max_bytes, limits.max_chars or limits.max_bytes)

    def shown(self, result, arguments, tool="run"):
        """A result as the model sees it; what is cut is kept."""
        message = ChatMessage.read(json.dumps({"role": "tool", "tool_call_id": "c", "content": result}).encode())
        entry = prepared(1, message, tool, (self.step,), self.notices, COUNTER, read=page_read(json.dumps(arguments)))
        for edit in entry.edits:
            (self.folder / edit.artifact.id).write_bytes(edit.artifact.content)
        shown = json.loads(entry.message.raw)["content"]
        self.reported += re.findall(r"\[context-proxy: [^\]]*\]", shown)
        return shown

    def call(self, shown, last):
        """The next call: as the newest notice says, or, where a page came whole, the one after the last."""
        notice = shown[shown.rindex(MARK) :] if MARK in shown else ""
        notice = notice.replace('\\"', '"')
        if found := re.search(r"read_artifact\(([^)]*)\)", notice):
            return dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
        if found := re.search(r"((?:sed -n|tail -[cn]) [^\]]*?(?:p' '[^']*'|head -c \d+))", notice):
            return {"command": found[1]}
        if found := re.search(r"curl -s '([^']*)'", notice):
            return {"command": found[0]}
        if found := re.search(r"lines=([\d:-]+)", notice):
            return self.moved(last, found[1])
        if found := re.search(r"(?:from line (\d+) on|第 (\d+) 行起)(?:\D+(\d+) (?:lines|行))?", notice):
            place = re.search(r"/\S+/tool_\w+_[0-9a-f]{16}\.\w+", notice)[0]
            return {"file_path": place, "offset": int(found[1] or found[2]), "limit": int(found[3] or 81)}
        return None if notice else self.after(last)

    @staticmethod
    def moved(last, lines):
        if "command" in last:
            return {"command": re.sub(r"lines=[\d:-]+", f"lines={lines}", last["command"])}
        return {**last, "lines": lines}

    @staticmethod
    def after(last):
        if "limit" in last:
            return {**last, "offset": last["offset"] + last["limit"]}
        command = last["command"]
        if found := re.match(r"sed -n '(\d+),(\d+)p'", command):
            first, end = int(found[1]), int(found[2])
            return {"command": command.replace(found[0], f"sed -n '{end + 1},{2 * end - first + 1}p'")}
        byte, count = int(re.search(r"tail -c \+(\d+)", command)[1]), int(re.search(r"head -c (\d+)", command)[1])
        return {"command": command.replace(f"tail -c +{byte}", f"tail -c +{byte + count}")}

    def result(self, call):
        if "id" in call:
            parameters = wanted_by(json.dumps(call)).parameters
            return RETRIEVAL_TOOL, self.page(call["id"], parameters, self.page_bytes)
        if "offset" in call:
            lines = Path(call["file_path"]).read_text().split("\n")[call["offset"] - 1 :][: call["limit"]]
            return "Read", "".join(f"{n:6}→{line}\n" for n, line in enumerate(lines, call["offset"]))
        if call["command"].startswith("curl"):
            url = urlsplit(re.search(r"'([^']*)'", call["command"])[1])
            page = self.page(url.path.rpartition("/")[2], dict(parse_qsl(url.query)))
            return "run", framed(self.frame, page)
        done = subprocess.run(["/bin/bash", "-c", call["command"]], capture_output=True, check=True)
        return "run", framed(self.frame, done.stdout.decode(errors="replace"))

    def page(self, name, parameters, max_bytes=10**9):
        content = (self.folder / name).read_bytes()
        query = Query.parse(parameters)
        if query.pointer:
            content = part_at(content, query.pointer)
        pages = read(LineIndex.of_text(content), query, name, "en", min(max_bytes, 48_000))
        span = next(pages)
        while True:
            try:
                span = pages.send(content[span[0] : span[1]])
            except StopIteration as stopped:
                return stopped.value.decode(errors="replace")

    def reads(self, whole, first=None):
        """Follow the notices to the end; each call must show something new. Returns how many calls it took."""
        shown = self.shown(framed(self.frame, whole) if first is None else first, {"command": "make"})
        seen, last = covered(shown, whole), {}
        for calls in range(1, 4_000):
            if len(seen) >= len(whole) - calls * self.unclear:
                return calls - 1
            last = self.call(shown, last)
            assert last is not None, shown[-600:]
            tool, result = self.result(last)
            shown = self.shown(result, last, tool)
            new = covered(shown, whole) - seen
            assert new, (last, len(seen), len(whole), shown[-900:])
            seen |= new
        raise AssertionError("no end")


TEXTS = {
    "one line": numbers(2_500, lambda n: False),
    "many lines": numbers(2_500, lambda n: n % 5 == 4),
    "lines of each length": numbers(2_500, lambda n: n % (1 + n // 40) == 0),
}
LIMITS = {
    "8 000 tokens": ExcerptLimits(max_bytes=5_400),
    "16 000 tokens": ExcerptLimits(max_bytes=12_600),
    "characters": ExcerptLimits(max_chars=4_000),
    "few lines": ExcerptLimits(max_lines=12, max_bytes=6_000),
    "head": ExcerptLimits(max_bytes=8_000, direction=Direction.HEAD),
    "tail": ExcerptLimits(max_bytes=8_000, direction=Direction.TAIL),
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("access", ACCESS)
def test_following_the_notices_shows_new_pages_until_the_whole_has_been_seen(tmp_path, access, text, limits):
    whole = TEXTS[text]
    assert Agent(tmp_path, access, LIMITS[limits]).reads(whole) < 80


@pytest.mark.parametrize("access", ["shell", "curl"])
@pytest.mark.parametrize("text", ["one line", "many lines"])
@pytest.mark.parametrize("frame", [frame for frame in FRAMES if frame != "bare"])
def test_reading_continues_whatever_a_tool_puts_around_a_page(tmp_path, access, text, frame):
    assert Agent(tmp_path, access, ExcerptLimits(max_bytes=6_000), frame).reads(TEXTS[text]) < 400


@pytest.mark.parametrize("text", ["one line", "many lines"])
@pytest.mark.parametrize("frame", ["exit code", "output", "common"])
def test_a_cut_page_continues_after_the_tools_own_prefix(tmp_path, text, frame):
    """Nothing is skipped, whatever precedes the page and however it is escaped."""
    limits, suggested = ExcerptLimits(max_bytes=3_000), ExcerptLimits(max_bytes=9_000)
    agent = Agent(tmp_path, "shell", limits, frame, suggested=suggested)
    whole = TEXTS[text][:12_000]
    kept = tmp_path / NAME
    kept.write_text(whole)
    read = page_read(f"tail -c +1 '{kept}' | head -c 9000")
    page = framed(agent.frame, whole[:9_000])
    shown = agent.shown(page, {"command": f"tail -c +1 '{kept}' | head -c 9000"})
    assert read.id == NAME
    following = agent.result(agent.call(shown, {}))[1]
    begins, stopped = min(covered(following, whole)), max(covered(shown, whole)) + 1
    assert stopped - 300 < begins <= stopped, "nothing is skipped, and hardly anything is shown twice"


def test_what_is_not_kept_names_no_way_however_it_is_read():
    notices = Notices("en", ArtifactAccess("/d"), AgentFileAccess.SHELL, kept=False, read=PageRead(NAME))
    assert NAME not in notices.response_text(Artifact(b""), Resume.between("a", "b", PageSize()), brief=True)


def test_a_page_has_no_hash_for_gateways():
    assert PageRead(NAME).hash == ""


def test_escapes_are_as_long_as_the_text_they_encode():
    page = "é中\U0001f600\n\t" * 90
    read = PageRead(NAME, 1, 0, None, len(page.encode()))
    written = json.dumps({"output": page})
    assert read.without_frame(written[:600], written).startswith("中\U0001f600\n?é中")


@pytest.mark.parametrize("access", ACCESS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_that_is_cut_again_continues_where_it_stops(tmp_path, access, text, language):
    whole = TEXTS[text][:12_000]
    agent = Agent(tmp_path, access, ExcerptLimits(max_bytes=1_500), "bare", language, ExcerptLimits(max_bytes=20_000))
    assert agent.reads(whole) < 100
    named = {Path(name).name for name in re.findall(r"tool_run_\w+\.txt", "".join(agent.reported))}
    assert len(named) == 1, "every notice leads on in the original"


@given(
    st.integers(600, 9_000),
    st.none() | st.integers(1_000, 9_000),
    st.integers(3, 200),
    st.sampled_from(["curl", "read_artifact", "reader"]),
    st.integers(1, 400),
)
@settings(max_examples=25, deadline=None)
def test_there_is_no_limit_at_which_reading_goes_in_a_circle(
    tmp_path_factory, max_bytes, max_chars, max_lines, access, numbers_in_a_line
):
    whole = numbers(1_500, lambda n: n % numbers_in_a_line == 0)
    limits = ExcerptLimits(max_lines, max_bytes, max_chars)
    Agent(tmp_path_factory.mktemp("kept"), access, limits).reads(whole)


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        ({"command": f"sed -n '81,161p' '/d/{NAME}'"}, PageRead(NAME, 81, 0, 81)),
        ({"command": ["bash", "-lc", f" sed -n '5,5p' '/d/{NAME}'\n"]}, PageRead(NAME, 5, 0, 1)),
        ({"cmd": f"tail -c +10 '/d/{NAME}' | head -c 99"}, PageRead(NAME, 1, 9, None, 99)),
        ({"cmd": f"tail -n +3 '/d/{NAME}' | tail -c +10 | head -c 99"}, PageRead(NAME, 3, 9, None, 99)),
        ({"cmd": f"cat '/a b/{NAME}'"}, PageRead(NAME)),
        ({"cmd": f"curl -s -H \"api-key: $KEY\" 'http://h/artifacts/{NAME}'"}, PageRead(NAME)),
        (
            {
                "cmd": 'curl -s -H "Authorization: Bearer $ANTHROPIC_AUTH_TOKEN" -H "x-api-key: $ANTHROPIC_API_KEY" '
                f"-H \"api-key: $AZURE_OPENAI_API_KEY\" 'http://h/artifacts/{NAME}'"
            },
            PageRead(NAME),
        ),
        ({"file_path": f"/d/{NAME}", "offset": 81, "limit": 9}, PageRead(NAME, 81, is_numbered=True)),
        ({"path": f"C:\\d\\{NAME}", "view_range": [7, 9]}, PageRead(NAME, 7, is_numbered=True)),
        ({"absolute_path": f"/d/{NAME}", "start_line": True, "offset": -5}, PageRead(NAME, 1, is_numbered=True)),
    ],
)
def test_a_call_that_reads_a_page_is_recognised(arguments, page):
    assert page_read(json.dumps(arguments)) == page


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": f"sed -n '81,161p' '/d/{NAME}'; make test"},
        {"command": f"grep -n x '/d/{NAME}'"},
        {"command": "sed -n '81,161p' '/d/other.txt'"},
        {"path": f"/d/{NAME}", "pattern": "x"},
        {"file_path": f"/d/{NAME}.bak"},
        {"prompt": f"Read /d/{NAME}"},
        {"file_path": "x" * 6_000 + NAME},
        [NAME],
        f"cat /d/{NAME}",
    ],
)
def test_any_other_call_returns_something_of_its_own(arguments):
    assert page_read(json.dumps(arguments)) is None


def test_arguments_that_are_no_json_may_be_the_command_itself():
    assert page_read(f"cat '/d/{NAME}'") == PageRead(NAME)


@given(st.text(max_size=80), st.booleans(), st.integers(0, 80))
def test_the_place_of_a_character_in_a_json_string_is_known(text, is_ascii, count):
    written = json.dumps(text, ensure_ascii=is_ascii)
    count = min(count, len(text))
    assert json.loads(written[: written_length(written, count)] + '"') == text[:count]


def test_the_numbers_of_a_read_tool_count_not_the_lines_of_its_frame():
    read = PageRead(NAME, 81, is_numbered=True)
    shown = "<file>\n    81→a\n    82→b\n    83→"
    assert (Resume.between(shown, "c", PageSize(), read).line, Resume.between("a\nb", "", PageSize(), read).line) == (
        83,
        82,
    )
