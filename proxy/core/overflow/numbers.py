"""Text → its numbers, each with its role: limit, requested, prompt, reply, excess.

Rule: when in doubt, return None: a wrong number does more harm than a missing one. Figures that cannot be token counts
are removed before anything is read, and contradictory ones are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct, structs

from proxy.core.overflow.patterns import AFTER, EQUATIONS, EXCESS, HEADS, INPUT, NOISE, NOUNS, RATE, WINDOW, Cue, Role
from proxy.core.overflow.report import Exactness, Figures, Scope, Unit
from proxy.core.overflow.words import CHARACTERS, PROMPT, REPLY

_SMALLEST_LIMIT: Final = 64
"""Smaller ones limit images, tools or stop words: no model has such a small window."""
_SMALLEST_SIZE: Final = 16
"""Smaller ones are parts of names ("GPT 4") unless the words after them say otherwise ("0 in the completion")."""

_MAX_NUMBERS: Final = 64
"""The longest refusal seen prints nine."""
_NUMBER: Final = re.compile(
    r"(?<![a-z0-9_.\-])(?<![^0-9 ]/)"  # not the tail of a name, a version or a path; but "5910/4095"
    r"(?:(?P<grouped>\d{1,3}(?P<by>[,._' \u00a0\u202f])\d{3}(?:(?P=by)\d{3}){0,3})(?!\d|[,._']\d)"
    r"|(?P<plain>\d{1,12}(?:\.\d{1,3})?)(?!\d))"
    r"(?: ?(?P<magnitude>[km](?![a-z0-9])|万|千))?"
    r"(?![a-su-z0-9_]|t(?!okens?))"  # "4096tokens" is a number, "4th" and "70b" are not
)
_RANGE: Final = re.compile(r"\[([01]),(?=\d{1,12}\])")
"""`[1,512]` does not mean fifteen hundred."""
_MAGNITUDES: Final = {"k": 1_000, "m": 1_000_000, "千": 1_000, "万": 10_000}
_PIECES: Final = re.compile(
    r" ?(?:bytes?|[kmg]i?b\b|pixels?|px|images?|image\(s\)|files?|tools?|pages?|requests?|%|字节|张)"
)
_CHARACTERS: Final = re.compile(rf"{_PIECES.pattern}| ?(?:characters?|chars?|字符)")

_ABOUT: Final = re.compile(r"(?:about|approximately|approx\.?|around|roughly|estimated|~|约|大约|左右)\W{0,3}$")
_AT_LEAST: Final = re.compile(
    r"(?:at least|至少|(?:(?<=resulted in )|(?<=contains )|(?<=has ))(?:over|more than))\W{0,3}$"
)
_DEFINED: Final = re.compile(r"(?<![a-z0-9_])([a-z_]{2,40}) ?[:=] ?$")
"""`n_keep: 13055`, `input_len=181234`: a name and its value."""
_CLAUSE_START: Final = re.compile(
    r"[;，]|[.,!?](?= )|(?<![a-z0-9_])(?:and|but|however|while|whereas|or|then)(?![a-z0-9_])"
)


def _one_of(cues: tuple[Cue, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{cue.role}>{cue.pattern})" for cue in cues))


_HEADS: Final = _one_of(HEADS)
_NOUNS: Final = _one_of(NOUNS)
_EXCESS: Final = re.compile(EXCESS.pattern)
_AFTER: Final = [(cue.role, re.compile(rf"[\s'(个]{{0,3}}(?:{cue.pattern})")) for cue in AFTER]


class Number(Struct, frozen=True):
    """One number in a text."""

    value: int
    exactness: Exactness = Exactness.EXACT
    """About for 256K: anything from 256 000 to 262 144."""


class _Mention(NamedTuple):
    """A number in its role."""

    role: Role
    value: int
    exactness: Exactness
    scope: Scope = Scope.UNKNOWN
    """Of the bound that the words around it name."""
    is_named: bool = False
    """Whether it is taken for a limit only because the window's name comes before it: "context length 5000 exceeds
    4096"."""


def skeleton(text: str) -> tuple[str, list[Number]]:
    """The normalised text with `#` for each number, and the numbers.

    >>> bones, numbers = skeleton("error 400: 5,000 tokens > 4k (request id: 77)")
    >>> bones, [(number.value, number.exactness.value) for number in numbers]
    (' : # tokens > # ( ', [(5000, 'exact'), (4000, 'about')])
    """
    text = _RANGE.sub("[\\1, ", NOISE.sub(" ", text.replace("#", " ")))
    foreign = _CHARACTERS if "token" in text else _PIECES  # characters are a unit only if tokens are not mentioned
    pieces, numbers, end = [], [], 0
    for match in islice(_NUMBER.finditer(text), _MAX_NUMBERS):
        if foreign.match(text, match.end()) is None:
            pieces.append(text[end : match.start()])
            end = match.end()
            numbers.append(Number(_value(match), Exactness.ABOUT if match["magnitude"] else Exactness.EXACT))
    return "#".join([*pieces, text[end:]]), numbers


def _value(match: re.Match[str]) -> int:
    scale = _MAGNITUDES.get(match["magnitude"] or "", 1)
    if (grouped := match["grouped"]) is None:
        return int(float(match["plain"]) * scale)
    if scale > 1 and match["by"] == ".":  # 1.048M
        return int(float(grouped) * scale)
    return int(grouped.replace(match["by"], "")) * scale


def read(text: str) -> Figures:
    """The figures of a normalised text that contains no sentence about anything else.

    >>> figures = read("prompt token count of 93,854 exceeds the limit of 90,000")
    >>> figures.limit, figures.prompt
    (90000, 93854)
    """
    bones, numbers = skeleton(text)
    mentions, taken = _in_an_equation(bones, numbers)
    segments = bones.split("#")
    for index, number in enumerate(numbers):
        if index not in taken:
            mentions += _mentioned(segments[index][-120:], number, segments[index + 1][:60])
    return _settled(mentions, text)


def merged(stated: Figures, printed: Figures) -> Figures:
    """The figures that a response states separately, completed from the printed ones."""
    if stated.limit is None and stated.largest_size is None:
        return printed
    return structs.replace(
        printed if stated.limit is None else structs.replace(stated, unit=Unit.TOKENS),
        prompt=printed.prompt if stated.prompt is None else stated.prompt,
        requested=printed.requested if stated.requested is None else stated.requested,
        reply=printed.reply,
        excess=printed.excess,
    )


def read_rate(text: str, printed: re.Pattern[str] = RATE) -> tuple[int, int] | None:
    """(allowed, requested by this request alone), in tokens, from a normalised sentence that prints both and the
    request's is the larger: by a rate, or by whatever is `printed`.

    >>> read_rate("on tokens per minute (tpm): limit 6000, requested 14810, please reduce your message size")
    (6000, 14810)
    """
    found = printed.search(text)
    numbers = (0, 0) if found is None else (int(found[1].replace(",", "")), int(found[2].replace(",", "")))
    return numbers if numbers[1] > numbers[0] else None


def _in_an_equation(bones: str, numbers: list[Number]) -> tuple[list[_Mention], set[int]]:
    """The numbers of the first equation in the text, and their indexes."""
    for equation in EQUATIONS:
        if (match := equation.pattern.search(bones)) is None:
            continue
        indices = {Role(name): bones.count("#", 0, match.start(name)) for name in match.groupdict()}
        if Role.NOTHING in indices and numbers[indices[Role.NOTHING]].value > 1:
            continue  # a range of sizes begins at zero or one
        before = bones[: match.start()]
        scope = Scope(equation.scope) if equation.scope else _scope_of(bones[: match.end()][-120:])
        if Role.PROMPT not in indices and PROMPT.search(before) and not REPLY.search(before):
            indices = {Role.PROMPT if role is Role.REQUESTED else role: index for role, index in indices.items()}
        found = [(role, numbers[index]) for role, index in indices.items()]
        return [_Mention(role, number.value, number.exactness, scope) for role, number in found], {*indices.values()}
    return [], set()


def _scope_of(around: str) -> Scope:
    """What a limit applies to, by the names of bounds around it; prompt and reply together mean the window."""
    if WINDOW.search(around) or (INPUT.search(around) and REPLY.search(around)):
        return Scope.WINDOW
    return Scope.INPUT if INPUT.search(around) else Scope.UNKNOWN


def _mentioned(before: str, number: Number, after: str) -> Iterator[_Mention]:
    """A number in the role that the words beside it give it, if they give it one."""
    exactness = Exactness.ABOUT if _ABOUT.search(before) else number.exactness
    if _AT_LEAST.search(before):
        exactness, before = Exactness.AT_LEAST, _AT_LEAST.sub(" ", before)
    head, nouns = _head(before)
    trailing = next((role for role, pattern in _AFTER if pattern.match(after)), None)
    role = _role(head, nouns, trailing)
    if role is None or (number.value < _SMALLEST_SIZE and trailing is None and role is not Role.REPLY):
        return
    if role is Role.LIMIT:
        is_named = head is None and trailing is None
        yield _Mention(role, number.value, exactness, _scope_of(f"{before} {after}"), is_named)
    else:
        yield _Mention(role, number.value, exactness)


def _head(before: str) -> tuple[Role | None, set[Role]]:
    """The nearest head before a number, and the nouns between; for a requested size, the nouns of the clause."""
    if _EXCESS.search(before):
        return Role.EXCESS, set()
    if (defined := _DEFINED.search(before)) is not None:
        if (named := _NOUNS.fullmatch(defined[1]) or _HEADS.fullmatch(defined[1])) is not None:
            return None, {_role_of(named)}
        if "_" in defined[1]:
            return Role.NOTHING, set()
    clause = before[max((match.end() for match in _CLAUSE_START.finditer(before)), default=0) :]
    heads = list(_HEADS.finditer(clause))
    if heads:
        start = heads[-1].start() if _role_of(heads[-1]) is Role.LIMIT else 0
        return _role_of(heads[-1]), {_role_of(noun) for noun in _NOUNS.finditer(clause, start)}
    nouns = list(_NOUNS.finditer(clause))
    if nouns:
        return None, {_role_of(nouns[-1])}
    return (Role.REQUESTED if "token" in clause else None), set()


def _role_of(match: re.Match[str]) -> Role:
    assert match.lastgroup is not None  # every alternative is a named group
    return Role(match.lastgroup)


def _role(head: Role | None, nouns: set[Role], trailing: Role | None) -> Role | None:
    """The role of a number from the head before it, the nouns between, and the words after it."""
    if head in (Role.EXCESS, Role.NOTHING):
        return head
    if head is Role.LIMIT:
        return Role.NOTHING if Role.REPLY in (*nouns, trailing) else Role.LIMIT
    if trailing is not None:
        return trailing
    if head is Role.REQUESTED:
        parts = nouns & {Role.REPLY, Role.PROMPT}
        return parts.pop() if len(parts) == 1 else Role.REQUESTED
    return next(iter(nouns), None)


def _settled(mentions: Sequence[_Mention], text: str) -> Figures:
    """The figures on which the numbers agree."""
    by_role = {role: [one for one in mentions if one.role is role] for role in Role}
    first = {role: found[0].value for role, found in by_role.items() if found}
    prompts, requested, limits = by_role[Role.PROMPT], first.get(Role.REQUESTED) or None, by_role[Role.LIMIT]
    hedges = (one.exactness for one in (*prompts, *by_role[Role.REQUESTED]))
    figures = Figures(
        limit_scope=next((one.scope for one in mentions if one.scope is not Scope.UNKNOWN), Scope.UNKNOWN),
        requested=requested,
        prompt=_prompt({one.value for one in prompts}, requested, first.get(Role.REPLY) or 0),
        reply=first.get(Role.REPLY),
        excess=first.get(Role.EXCESS),
        exactness=next((how for how in hedges if how is not Exactness.EXACT), Exactness.EXACT),
    )
    is_uncounted = figures.largest_size is None and len(limits) == 2
    if is_uncounted and limits[0].is_named and limits[0].value > limits[1].value:
        figures, limits = structs.replace(figures, requested=limits[0].value), limits[1:]
    limit = _limit(figures, limits, is_joint=REPLY.search(text) is not None)
    if limit is not None:
        figures = structs.replace(figures, limit=limit.value, limit_exactness=limit.exactness)
    if all(size is None for size in (limit, figures.largest_size, figures.reply, figures.excess)):
        return figures
    return structs.replace(figures, unit=Unit.CHARS if CHARACTERS.search(text) and "token" not in text else Unit.TOKENS)


def _prompt(prompts: set[int], requested: int | None, reply: int) -> int | None:
    """Several inputs (messages, functions, tools) are parts if they add up to the total, otherwise repetitions."""
    total = sum(prompts)
    return total if prompts and requested == total + reply else max(prompts, default=None)


def _limit(figures: Figures, limits: Sequence[_Mention], *, is_joint: bool) -> _Mention | None:
    """The first limit that the requested size exceeds; a prompt below it exceeds it only together with the reply."""
    plausible = [limit for limit in limits if limit.value >= _SMALLEST_LIMIT]
    prompt = figures.largest_size
    if prompt is None:
        return plausible[0] if len({(limit.value, limit.exactness) for limit in plausible}) == 1 else None
    may_be_over = is_joint and figures.requested is None and figures.reply is None
    fitting = [limit for limit in plausible if limit.value <= prompt] or (plausible if may_be_over else [])
    return fitting[0] if fitting else None
