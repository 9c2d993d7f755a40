"""Text of a refusal → the limit that it names, besides the window: of images, messages, calls, one string, the reply.

Rule: the first row whose words occur, and whose number can be such a limit, decides; a limit is a number beside a word
that bounds, never a count or an index.
Words and numbers are looked for in the whole text, because the rule and what broke it are often two sentences.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from proxy.core.models import LimitName


class NamedLimit(NamedTuple):
    """A limit by its name, and what a refusal states about it."""

    name: LimitName
    most: int
    seen: int | None = None
    """What the request has, if that is stated."""


_IMAGE: Final = r"(?:images?|image\(s\)|image[_ ]urls?|pictures?|screenshots?|photos?|图片|图像|画像|이미지)"
_FILE: Final = r"(?:documents?|files?|pdfs?|attachments?|文件|文档)"
_MANY: Final = r"(?:too many|number of|at most \d+|max(?:imum)?(?: of)? \d+|more than \d+|up to \d+)"
_LIST: Final = (
    r"(?:'?:? (?:(?:array|list) (?:too long|must contain|should have)|size must be between|length must be"
    r"|failed to satisfy constraint: member must have length)|\b[^.;]{0,60}\d (?:items|entries|elements)\b)"
)
_ALL: Final = rf"(?:(?:total|combined|all) (?:\w+ ){{0,3}}(?:media|images?|attachments?)\b|in total|{_IMAGE}总)"
_UNIT: Final = r" ?(?:bytes\b|[kmg]i?b?\b(?! ?(?:pixels|tokens|context|characters))|字节|[kmg]b?(?=[^\x00-\x7f]))"
_BYTES: Final = rf"\d{_UNIT}"
_SIDE: Final = r"(?:pixels?\b|\d ?px\b|dimensions?|width|longe(?:st|r) (?:side|edge)|\d ?x ?\d|像素)"
_ENCODED: Final = r"image[_ ]url(?:\W{0,2}url)?'?: string too long|per data[- ]ur[il]"
"""OpenAI's and DashScope's limits of one image are of its base64."""
_ONE_TEXT: Final = (
    r"(?:(?:string|field|this value|(?:each|single|one|per|a|your) message|message (?:content|length)|arguments"
    r"|content (?:length|must|should|exceeds?|(?:is )?too long)|messages?\W{0,2}\d{1,5}\W{1,3}content)\b"
    r"|[单每][条个]消息|[一1]つの messages|messages 하나|(?:content|text)' failed|size must be between 0 and)"
)
_OF_A_NAME: Final = (
    r"\b(?:tools|functions)[\[.]|\.(?:name|description|id|call_id)\b|invalid '(?:user|metadata)"
    r"|\b(?:array|list)\b(?! type)|image|\btokens?\b"
)
"""`Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024`."""
_A_COUNT: Final = r"^(?!.*\b(?:ratio|frames?|seconds?|minutes?|duration)\b)"
_ROWS: Final = tuple(
    (name, re.compile(words))
    for name, words in (
        (
            LimitName.STRING,
            rf"^(?!.*(?:{_OF_A_NAME}))(?=.*(?<!\w){_ONE_TEXT})"
            r".*(?:\bchar|\bstring\b.*\b(?:length|long)\b|length must be|max(?:imum)? length|too long|字符"
            r"|must have length|size must be)",
        ),
        (LimitName.SIDE_OF_MANY, rf"^(?=.*(?:many|multi(?:ple)?|more than \d+)[- ]images?\b)(?=.*{_SIDE})"),
        (LimitName.SIDE, rf"^(?=.*(?:{_IMAGE}|dimension))(?=.*{_SIDE})"),
        (LimitName.MEDIA, r"pages? \+ \d+ images"),
        (LimitName.PAGES, r"\bpages\b|\d[- ]page\b|\bpage count|页数"),
        (LimitName.IMAGE_BYTES, _ENCODED),
        (LimitName.MEDIA_BYTES, rf"^(?=.*{_ALL}).*{_BYTES}"),
        (LimitName.IMAGE_BYTES, rf"^(?=.*{_IMAGE}).*{_BYTES}"),
        (LimitName.MEDIA, rf"{_IMAGE} (?:and|or|/|\+) {_FILE}|{_FILE} (?:and|or|/|\+) {_IMAGE}"),
        (LimitName.MEDIA, r"\bmedia (?:items?|files?|parts?|count)"),
        (LimitName.AUDIO, rf"{_A_COUNT}.*(?:\baudios?\b|音频)"),
        (LimitName.VIDEOS, rf"{_A_COUNT}.*(?:\bvideos?\b|视频)"),
        (LimitName.IMAGES, rf"{_A_COUNT}.*{_IMAGE}"),
        (
            LimitName.CALLS,
            rf"tool[_ ]calls{_LIST}|(?:{_MANY}|parallel|supports \d+) (?:tool|function)[ _-]calls?"
            r"|(?:tool[_ ]calls|工具调用) ?[数次]",
        ),
        (LimitName.PARTS, rf"content{_LIST}|{_MANY} (?:content )?(?:parts|blocks)\b(?! with)"),
        (LimitName.TOOLS, rf"(?:tools|functions){_LIST}|{_MANY} (?:tools?|functions?)\b|\btools? count"),
        (LimitName.MESSAGES, rf"(?:messages|input){_LIST}|(?:{_MANY}|\d) (?:chat |input )?(?:messages|turns)\b"),
        (
            LimitName.MESSAGES,
            r"messages? count|(?:messages|消息|对话|会话) ?(?:数|条数|轮|长度)|\d ?条(?:消息|对话|历史)",
        ),
        (LimitName.FILES, rf"{_MANY} {_FILE}|{_FILE} count|文件数"),
    )
)
"""The first row decides: what is said of bytes, pixels and pages names images, too."""
_BOUNDS: Final = re.compile(
    r"too many|at most|up to|max|limit|exceed|(?:more|fewer|less|larg|great|small)\w* than|only|no more|over|allowed"
    r"|array too long|dimension|must|should|or (?:fewer|less)|[<>]|最[多大]|超过|超出|上限|不能|以[下内]"
)
_BEFORE: Final = (
    r"(?:at most|up to|no more than|not exceed|not be more than|(?:less|fewer) than(?: or equal to)?|more than|only|"
    r"(?:small|short)er than(?: or equal to)?|(?<!must be )(?:larg|great)er than|between \d+ and|defaulted to|"
    r"exceed(?:s|ed|ing)?(?: \w+){0,2}?|"
    r"max(?:imum)?(?:_\w+)?(?:[ -][a-z_]+){0,8}|limit(?:s|ed)?(?:[ -][a-z_]+){0,4}|"
    r"allowed(?: [a-z_]+){0,4}|supports?|<=?|>=?|最[多大](?:支持|允许|可传)?|上限为?|不(?:能|得|可)?超过|超过了?"
    r"|限制为?)"
)
_MOST: Final = re.compile(
    rf"{_BEFORE}[\s:=('\[]{{0,3}}(?P<before>\d+(?:[,_]\d{{3}})*(?:\.\d+)?)(?P<unit>{_UNIT})?"
    r"|(?P<after>\d+(?:,\d{3})*)(?=(?: (?!exceed|over)\w+(?:\(s\))?){0,2} "
    rf"(?:max(?:imum)?\b|allowed|at most|or (?:fewer|less)))"
    rf"|(?P<below>\d+)(?P<of>{_UNIT})?(?: characters |字符?)?.?以[下内]"
)
_EQUATION: Final = re.compile(r"(\d[\d,]*)(?: \+ (\d[\d,]*))?(?: ?bytes)? ?[>/] ?(\d+(?:,\d{3})*)")
_ONE: Final = re.compile(
    r"\b(only|at most|up to|maximum(?: of)?|more than|only supports?|supports? only) (?:one|a single|single) "
    r"(?=image|picture|tool|function|audio|video|file|document)"
)
"""A number in words: vLLM's templates say `This model only supports single tool-calls at once!`, Ollama `vision model
only supports a single image per message`."""
_SEEN: Final = re.compile(
    r"(?:too many \w+(?: and \w+)?:?|got|found|received|contains|provided|passed|has|count:?|you (?:sent|provided)) "
    r"(?:an? (?:array|string) with length )?\(?(\d+(?:,\d{3})*)"
)
_SCALE: Final = {"k": 1024, "m": 1024**2, "g": 1024**3}

_REPLY: Final = re.compile(
    r"max[_ ]?(?:completion_?|new_?|output_?|gen_?)?tokens|num_predict|(?:completion|output|generated|new) tokens|"
    r"(?:completion|output|response|generation) length|"
    r"maximum tokens you requested|tokens (?:for|in) the (?:completion|output|reply|response)"
    r"|generate (?:at most|up to)"
)
_REPLY_BOUND: Final = re.compile(
    r"at most|less than|cannot|must|maximum|exceed|range|too (?:large|big|high)|supports?|up to|no more|limit|afford"
    r"|>|<|范围|最大|不能|上限|超过"
)
_LEAST_BOUND: Final = re.compile(r"must be (?:greater|larger|higher) than")
"""Anthropic: `max_tokens must be greater than thinking.budget_tokens`."""
_INTEGER: Final = re.compile(
    r"(?P<under>(?:less|lower) than )?(?<![\d.a-z_-])(?P<of>\d{1,3}(?:[,_]\d{3})+(?!\d)|\d+)(?![\d.]*\d)(?![a-z])"
    r"(?P<open> ?\(exclusive\))?"
)
_LEAST_REPLY_TOKENS: Final = 64
"""A smaller number bounds no reply."""
_LARGEST: Final = 2**31
_LEAST: Final = {
    LimitName.STRING: 256,  # less is one of a name or an id
    LimitName.IMAGE_BYTES: 4_096,
    LimitName.MEDIA_BYTES: 4_096,
    LimitName.SIDE: 64,
    LimitName.SIDE_OF_MANY: 64,
    LimitName.MESSAGES: 4,
}
"""The smallest limit that a request can keep to; 1 for the others."""


def named_limit(text: str) -> NamedLimit | None:
    """The limit that a normalised text names; None if it names none, or no number.

    >>> named_limit("too many images and documents: 101 + 0 > 100")
    NamedLimit(name=<LimitName.MEDIA: 'media'>, most=100, seen=101)
    >>> named_limit("this model supports up to 5 images")
    NamedLimit(name=<LimitName.IMAGES: 'images'>, most=5, seen=None)
    """
    text = _ONE.sub(r"\1 1 ", text)
    names = (name for name, words in _ROWS if words.search(text)) if _BOUNDS.search(text) else ()
    found = (_limit(name, text) for name in names)
    return next((one for one in found if _LEAST.get(one.name, 1) <= one.most <= _LARGEST), None)


def _limit(name: LimitName, text: str) -> NamedLimit:
    if (equation := _EQUATION.search(text)) is not None:
        return NamedLimit(name, _number(equation[3]), _number(equation[1]) + _number(equation[2] or "0"))
    least, stated = _LEAST.get(name, 1), _SEEN.search(text)
    seen = _number(stated[1]) if stated else None
    bounds = [bound for bound in map(_bound, _MOST.finditer(text)) if bound >= least]
    most = min((bound for bound in bounds if seen is None or bound < seen), default=0)
    if name in (LimitName.SIDE, LimitName.SIDE_OF_MANY):
        most = _side(most or _pixels(text), text)
    if name is LimitName.IMAGE_BYTES and re.search(_ENCODED, text):
        most = most * 3 // 4
    return NamedLimit(name, most, seen)


def _bound(found: re.Match[str]) -> int:
    number, unit = found["before"] or found["after"] or found["below"], (found["unit"] or found["of"] or "").strip()
    return int(float(number.replace(",", "").replace("_", "")) * _SCALE.get(unit[:1], 1))


def _number(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


_LONGEST_SIDE: Final = 65_535
"""Pixels, in the formats of images."""
_PIXELS: Final = re.compile(r"(\d[\d,]*) ?(?:px|(?:mega)?pixels)|(\d[\d,]*) ?x ?\d")


def _pixels(text: str) -> int:
    return min((_number(one[1] or one[2]) for one in _PIXELS.finditer(text)), default=0)


def _side(most: int, text: str) -> int:
    """The longer side that every image over this limit exceeds, if that is one of all its pixels."""
    pixels = most * 1_000_000 if "megapixel" in text else most
    return math.isqrt(pixels) if pixels > _LONGEST_SIDE else pixels


def reply_limit(text: str, asked: int | None) -> int | None:
    """The reply limit that a normalised text allows: the largest number below what was asked for, in a text that bounds
    the reply.

    >>> reply_limit("max_tokens must be at least 1 and at most 22730, got 32000", 32_000)
    22730
    """
    if asked is None or _REPLY.search(text) is None or _REPLY_BOUND.search(text) is None or _LEAST_BOUND.search(text):
        return None
    numbers = _INTEGER.finditer(text.replace("..", " "))
    found = [_number(one["of"]) - bool(one["under"] or one["open"]) for one in numbers]
    return max((one for one in found if _LEAST_REPLY_TOKENS <= one < asked), default=None)
