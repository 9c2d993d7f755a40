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
from msgspec import structs
from support.reading_texts import bytes_in

from proxy.core.artifact_reading import Query, part_at, read
from proxy.core.conversation import Fetched, prepared
from proxy.core.models import AgentFileAccess
from proxy.core.notices import MARK, ArtifactAccess, Notices, PageSize, written_length
from proxy.core.retrieval_tool import RETRIEVAL_TOOL, wanted_by
from proxy.core.text import Direction, ExcerptLimits, LineIndex
from proxy.core.tokens import ByteClassCounter
from proxy.core.truncation import TruncateToolOutput
from proxy.wire.chat_completions import ChatMessage

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

    def __init__(self, folder, access, limits, frame="bare", language="en"):
        self.reach, way = ACCESS[access]
        self.folder, self.access, self.frame = folder, access, FRAMES[frame]
        self.way = {
            "folder": ArtifactAccess(str(folder), URL, (), access == "reader"),
            "url": ArtifactAccess(None, URL),
            "tool": ArtifactAccess(tool=True),
        }[way]
        self.limits, self.step = limits, TruncateToolOutput(limits)
        self.notices = Notices(language, self.way, self.reach, page=PageSize.within(limits))
        self.unclear = 0 if frame in ("bare", "exit code") else 2 * NUMBER
        """Characters at the edges of a page that is written as JSON within JSON."""
        self.page_bytes = min(limits.max_bytes, limits.max_chars or limits.max_bytes)

    def shown(self, result, tool="run"):
        """A result as the model sees it; what is cut is kept."""
        message = ChatMessage.read(json.dumps({"role": "tool", "tool_call_id": "c", "content": result}).encode())
        exist = {path.name: Fetched(b"", "", path.name) for path in self.folder.iterdir()}
        step = structs.replace(self.step, resolved=exist)
        entry = prepared(1, message, tool, (step,), self.notices, COUNTER)
        for edit in entry.edits:
            (self.folder / edit.artifact.id).write_bytes(edit.artifact.content)
        return json.loads(entry.message.raw)["content"]

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
    def place(call):
        return re.search(r"tool_\w+_[0-9a-f]{16}", json.dumps(call))[0]

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
        page = read(LineIndex.of_text(content), query, bytes_in(content), name, "en", min(max_bytes, 48_000))
        return page.decode(errors="replace")

    def reads(self, whole, first=None):
        """Follow the notices to the end; each call must show something new, or how to read on. Returns how many.
        A page that was cut is a text of its own: when that is read to its end, reading goes on behind the page."""
        shown = self.shown(framed(self.frame, whole) if first is None else first)
        seen, last, outer = covered(shown, whole), {}, []
        for calls in range(1, 1_500):
            if len(seen) >= len(whole) - calls * self.unclear:
                return calls - 1
            following = self.call(shown, last)
            assert following is not None, shown[-600:]
            if last and self.place(following) != self.place(last):
                outer.append(last)
            tool, result = self.result(following)
            if outer and not covered(result, whole) - seen:
                following = self.after(outer.pop())
                tool, result = self.result(following)
            last, shown = following, self.shown(result, tool)
            new = covered(shown, whole) - seen
            assert new or MARK in shown, (last, len(seen), len(whole), shown[-900:])
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


@given(st.text(max_size=80), st.booleans(), st.integers(0, 80))
def test_the_place_of_a_character_in_a_json_string_is_known(text, is_ascii, count):
    written = json.dumps(text, ensure_ascii=is_ascii)
    count = min(count, len(text))
    assert json.loads(written[: written_length(written, count)] + '"') == text[:count]
