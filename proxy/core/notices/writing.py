"""Writes the notices in place of what was cut, from the phrases of the catalogue. They name the ways in which the
client can get what was taken out: a path, an address, a tool.

Rule: a function of settings, of the request's tools and of how the client reaches the proxy, so it is the same in every
turn of a conversation. A way that is not known to work for a client is not named to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from proxy.core.artifact import ARTIFACT_NAME, Artifact
from proxy.core.models import AgentFileAccess
from proxy.core.notices.catalogue import CUTS, MARK, Language, as_text, framed, say
from proxy.core.notices.imitations import quoted
from proxy.core.notices.resume import PageSize, Resume
from proxy.core.text import MAX_RESCUED_LINES, Excerpt, count_lines, utf8_length


class ArtifactAccess(Struct, frozen=True):
    """The available ways; nothing here comes from the request's text."""

    folder: str | None = None
    """The folder of the artifacts as the agent sees it; None: the agent does not see it."""
    url: str | None = None
    """Where they are served, without a slash at the end; None: it is unknown by which name the agent reaches us."""
    key_headers: tuple[str, ...] = ()
    """The headers that have to carry the agent's key there, as a shell writes them: `x-api-key: $ANTHROPIC_API_KEY`."""
    tool: bool = False
    """Whether the request is offered our own tool, `read_artifact`."""
    tool_wants: str = ""
    """What the client would have to send to be offered that tool; empty: nothing would help, or it has it."""
    by_hash: bool = False
    """Whether a gateway fetches them for the agent, by their hash."""

    def path_of(self, artifact: Artifact) -> str | None:
        """The file, as the agent sees it.

        >>> from proxy.core.artifact import Artifact
        >>> ArtifactAccess("C:\\\\kept").path_of(Artifact(b"", "sh"))
        'C:\\\\kept\\\\tool_sh_e3b0c44298fc1c14.txt'
        """
        if self.folder is None:
            return None
        separator = "\\" if "\\" in self.folder and "/" not in self.folder else "/"
        return f"{self.folder.rstrip(separator)}{separator}{artifact.id}"

    def url_of(self, artifact: Artifact) -> str | None:
        """The address."""
        return None if self.url is None else f"{self.url}/{artifact.id}"


UNNAMED: Final = ArtifactAccess()
"""Nothing is known about the client."""
BY_HASH: Final = ArtifactAccess(by_hash=True)
"""Access for an agent behind a gateway that fetches by hash; nothing else is known of it."""


CALL: Final = "read_artifact("
"""How a notice names the proxy's own tool."""
NAMES_WORDS_BYTES: Final = 32
"""The most that a list of names costs besides the names."""
_TOOL: Final = re.compile(r"[\w.-]{1,64}")
"""Names of tools as the APIs allow them; another one is not repeated in our own words."""
_NAMED: Final = re.compile(ARTIFACT_NAME)
_REST_OF_LINE: Final = re.compile(rf"{re.escape(MARK)}(.*)")
"""Each line is read once, however often the mark occurs."""


class Notices(Struct, frozen=True):
    """Writes notices for one request."""

    language: Language
    way: ArtifactAccess
    """How the agent can get an artifact."""
    reach: AgentFileAccess = AgentFileAccess.NOTHING
    """Ways in which the request's tools can read it."""
    kept: bool = True
    """Whether artifacts can be kept at all now."""
    subagent: bool = False
    """Whether the request offers a tool that hands work to a sub-agent, whether or not the agent sees the folder."""
    shell: bool = False
    """Whether it offers a shell beside what `reach` says."""
    clean: Callable[[str], str] | None = None
    """Applied to words that quote a message, for an upstream that does not accept every character."""
    page: PageSize = PageSize()
    """How much a page that is suggested may hold."""

    @property
    def reaches_files(self) -> bool:
        """Whether the agent opens files with its own tools, and sees the folder."""
        return self.reach is not AgentFileAccess.NOTHING and self.way.folder is not None

    def truncated(self, shown: Excerpt, artifact: Artifact, names: Sequence[str], *, brief: bool = False) -> str:
        """An excerpt with its notice in the gap. `brief`: the same in as few words as possible, for small excerpts."""
        notice = self._shown(shown, artifact, Resume.after(shown, self.page), brief=brief)
        notice += self._say("names", names=" ".join(names)) if names else ""
        rescued = "".join(f"{line}\n" for line in shown.rescued)
        line_end = "\n" if shown.head and not shown.head.endswith("\n") else ""
        parts = [quoted(shown.head), line_end, self._framed(notice), quoted(rescued + shown.tail)]
        return as_text("".join(parts), self.language)

    def longest_truncated(self, text: str, artifact: Artifact, *, brief: bool) -> str:
        """A notice without names, at least as long as that of any excerpt of this text, so that room can be set aside
        before the excerpt is made: with the word before an excerpt that begins like JSON."""
        lines, size = count_lines(text), utf8_length(text)
        all_of_it = Excerpt("-", ("-",) * MAX_RESCUED_LINES, "-", "", lines, size, lines, size)
        resumes = Resume.longest(text, self.page)
        notices = (self._framed(self._shown(all_of_it, artifact, resume, brief=brief)) for resume in resumes)
        return as_text(max(notices, key=len), self.language)

    def _shown(self, shown: Excerpt, artifact: Artifact, resume: Resume, *, brief: bool) -> str:
        counts = {
            "kept_lines": shown.kept_lines,
            "lines": shown.total_lines,
            "kept_bytes": shown.kept_bytes,
            "bytes": shown.total_bytes,
        }
        if brief:
            return self._say("shown_brief", **counts) + self.way_back(artifact, resume, brief=True)
        return self._say("shown", parts=self._parts(shown), **counts) + self.way_back(artifact, resume)

    def omission_note(
        self,
        artifact: Artifact,
        messages: int,
        chars: int,
        thread: Sequence[tuple[str, str]] = (),
        lines: Sequence[tuple[str, Sequence[str]]] = (),
        before: str = "",
        tool: str = "",
    ) -> str:
        """The text that replaces omitted messages. `thread`: what was `asked`, `said`, `done` and planned in them, in
        order; `lines`: a selection from them, grouped by the file or command that they come from; `before`: the role
        of the text that follows it in the same message, `tool`: whose result that is."""
        notice = self._say("omitted", messages=messages, chars=chars)
        # Its first line names the files of all that left before; each of the others is a message, which may be long.
        files = """"${{f##*/}}" $(grep -m1 -oE 'tool_messages_.{{21}}' "$f")"""
        by_shell = f"""f='{{place}}'; (cd "${{{{f%/*}}}}"; grep -oE '.{{{{0,200}}}}REGEX.{{{{0,200}}}}' {files})"""
        notice += self._kept_at(artifact, "kept_messages", "call_messages", by_shell, grep="REGEX")
        questions = [text.replace("\n", "\n  ") for kind, text in thread if kind == "asked"]
        steps = [f"{'>' if kind == 'said' else '-'} {text}" for kind, text in thread if kind != "asked"]
        rows = [self._say("asked")] * bool(questions) + [f"- {text}" for text in questions]
        rows += [self._say("steps")] * bool(steps) + steps
        rows += [self._say("told")] * bool(lines)
        for source, selected in lines:
            rows += [f"{source}:"] * bool(source) + list(selected)
        if not rows:
            return self._framed(notice)
        told = quoted("".join(f"{row}\n" for row in rows))
        before = "result" if before == "tool" and _TOOL.fullmatch(tool) is None else before
        following = self._say(f"ends_{before}", tool=tool) if before else ""
        ends = self._framed(self._say("ends", following=following))
        return self._framed(notice) + (self.clean(told) if self.clean is not None else told) + ends

    def reasoning(self, artifact: Artifact, chars: int) -> str:
        """The text that replaces omitted reasoning."""
        return framed(self._say("reasoning", chars=chars) + self._kept_at(artifact, "whole", "call_whole"))

    def arguments(self, artifact: Artifact) -> str:
        """The text in the middle of an argument that is cut."""
        return framed(self._say("arguments") + self._kept_at(artifact, "whole", "call_whole"))

    def response_text(self, artifact: Artifact, resume: Resume, *, brief: bool = False) -> str:
        """The `text` of a tool response whose data was cut."""
        return framed(self._say("response") + self.way_back(artifact, resume, brief=brief))

    def replaced(self, count: int) -> str:
        """How many characters of a text were replaced, because the model's upstream does not accept them."""
        return self._framed(self._say("replaced", count=count))

    def whole(self, artifact: Artifact) -> str:
        """Where a content is kept that is not shown at all: the whole, because one page of an image is meaningless, and
        not by the proxy's own tool, which reads text."""
        notices = structs.replace(self, way=structs.replace(self.way, tool=False))
        return notices._kept_at(artifact, "whole", "call_whole")

    def way_back(self, artifact: Artifact, resume: Resume, *, brief: bool = False) -> str:
        """Where the whole is, and how to continue reading. `brief`: nothing but the next call, or the place."""
        if not self.kept:
            return self._say("unkept")
        path = self.way.path_of(artifact) if self.reach is AgentFileAccess.SHELL else None
        # A tool for files, which counts lines and cuts long ones, cannot read on within one, but ours can.
        is_needed = self.reach is AgentFileAccess.PAGE and self.way.tool and not resume.is_by_lines
        call = resume.command(path) if path is not None else self._call(artifact, resume.query(), is_needed=is_needed)
        values = {"line": resume.line, "byte": resume.line_bytes + 1, "count": resume.whole_lines}
        if brief:
            is_told = call is not None or self.reach is AgentFileAccess.NOTHING
            more = "more" if is_told else "more_from" if resume.is_by_lines else "more_bytes"
            return self._say(more, place=call or self.place_of(artifact), **values)
        if call is not None and path is None:
            return self._say("call", call=call)
        whole = self._place("whole", artifact)
        if not self.reaches_files:
            return whole
        is_inside = self.reach is AgentFileAccess.PAGE and not resume.is_by_lines
        return whole + self._say("page_bytes" if is_inside else self.reach.value, command=call, **values)

    def place_of(self, artifact: Artifact) -> str:
        """The path or address at which the agent finds an artifact; its bare name if the agent can reach neither, or
        nothing but our tool, with the hash if a gateway fetches it by that: written as LiteLLM looks for it."""
        if self.way.by_hash:
            return f"{artifact.id} (hash={artifact.hash})"
        if self.way.tool and self.reach is AgentFileAccess.NOTHING:
            return artifact.id
        return self.way.path_of(artifact) or self.way.url_of(artifact) or artifact.id

    def _kept_at(self, artifact: Artifact, in_place: str, by_call: str, by_shell: str = "", **query: str) -> str:
        """Where it is kept: the call that fetches it if the agent needs one and can make it, otherwise its place.
        `by_shell`: a shell command for the file at `{place}`."""
        if not self.kept:
            return self._say("unkept")
        path = self.way.path_of(artifact)
        has_shell = self.shell or self.reach is AgentFileAccess.SHELL
        is_by_shell = by_shell and has_shell and path is not None
        call = by_shell.format(place=path) if is_by_shell else self._call(artifact, query)
        return self._place(in_place, artifact) if call is None else self._say(by_call, call=call)

    def _place(self, in_place: str, artifact: Artifact) -> str:
        needs_tool = self.way.tool_wants and self.reach is AgentFileAccess.NOTHING
        advice = self._say("tool_wants", setting=self.way.tool_wants) if needs_tool else ""
        return self._say(in_place, place=self.place_of(artifact)) + advice

    def _call(self, artifact: Artifact, parameters: Mapping[str, str], *, is_needed: bool = False) -> str | None:
        url = self.way.url_of(artifact)
        if self.reaches_files and not is_needed:
            return None  # a tool that opens files needs only the path
        if self.reach is AgentFileAccess.SHELL and url is not None:
            keys = "".join(f' -H "{header}"' for header in self.way.key_headers)
            if "lines" in parameters and self.page.served_bytes is not None:
                parameters = {**parameters, "bytes": str(self.page.served_bytes)}
            query = "?" * bool(parameters) + "&".join(f"{name}={value}" for name, value in parameters.items())
            return f"curl -s{keys} '{url}{query}'"
        if self.way.tool:
            return f'{CALL}id="{artifact.id}"' + "".join(f', {k}="{v}"' for k, v in parameters.items()) + ")"
        return None

    def _parts(self, shown: Excerpt) -> str:
        parts = (("head", shown.head), ("rescued", shown.rescued), ("tail", shown.tail))
        names = [self._say(key, rescued=len(shown.rescued)) for key, part in parts if part]
        return self._say("and").join(names) or self._say("none")

    def _say(self, key: str, **values: object) -> str:
        return say(CUTS, key, self.language, **values)

    def _framed(self, notice: str) -> str:
        return framed(self.clean(notice) if self.clean is not None else notice) + "\n"


def is_ours(text: str) -> bool:
    """Whether a text contains a notice of ours: the mark, and an artifact's name in the same line.

    >>> is_ours("a [context-proxy: 1 of 2 … /d/tool_sh_0123456789abcdef.txt]"), is_ours("[context-proxy: hello]")
    (True, False)
    """
    return any(map(_NAMED.search, _REST_OF_LINE.findall(text)))
