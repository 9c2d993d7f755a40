"""Every phrase that is ever put before a model, in each language. The words of a notice are changed only here. The
other modules of this package, and those in `core/media`, decide which phrases are combined, and when.

Rule: a notice says what is shown, of how much, in which unit, and where the rest is, with the concrete next call. It
contains no time and nothing random: the same content gives the same words in every turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Language: TypeAlias = Literal["en", "zh"]
Phrases: TypeAlias = Mapping[str, tuple[str, str]]
"""Phrases by name, in English and in Chinese, with the same placeholders."""

MARK: Final = "[context-proxy: "
"""The beginning of every notice; together with an artifact's name it distinguishes our own notices from others'."""
QUOTED: Final = "[quoted text:"
"""Replaces the mark in others' texts."""


def say(phrases: Phrases, name: str, language: Language, /, **values: object) -> str:
    """One phrase, with its placeholders filled in."""
    return phrases[name][0 if language == "en" else 1].format(**values)


def framed(notice: str) -> str:
    """A notice with its mark."""
    return f"{MARK}{notice}]"


_BEGINS_LIKE_JSON: Final = re.compile(r"[\s\ufeff]*+[\[{\"]")


def as_text(result: str, language: Language) -> str:
    """Put a word before a tool result that is no JSON but begins like it, as a notice does: chat templates and gateways
    parse such a result, and refuse the request if they cannot.

    >>> as_text('{"rows": [1, [context-proxy: …]', "en"), as_text("total 8", "en")
    ('Text: {"rows": [1, [context-proxy: …]', 'total 8')
    """
    return say(CUTS, "text", language) + result if _BEGINS_LIKE_JSON.match(result) else result


def headed(notice: str, language: Language) -> str:
    """A notice as the first line of a tool result."""
    return as_text(framed(notice), language) + "\n"


CUTS: Final[Phrases] = {
    "text": ("Text: ", "文本："),
    "shown": (
        "{kept_lines:,} of {lines:,} lines, {kept_bytes:,} of {bytes:,} bytes of this text are shown: {parts}.",
        "此文本共 {lines:,} 行、{bytes:,} 字节，此处显示 {kept_lines:,} 行、{kept_bytes:,} 字节：{parts}。",
    ),
    "shown_brief": (
        "{kept_lines:,} of {lines:,} lines, {kept_bytes:,} of {bytes:,} bytes shown.",
        "此处显示 {lines:,} 行中的 {kept_lines:,} 行、{bytes:,} 字节中的 {kept_bytes:,} 字节。",
    ),
    "more": (" More: {place}", " 更多：{place}"),
    "more_from": (
        " More: {place}, from line {line} on, {count} lines at a time",
        " 更多：{place}，从第 {line} 行起，每次 {count} 行",
    ),
    "more_bytes": (
        " More: {place}, from byte {byte:,} of line {line:,} on",
        " 更多：{place}，从第 {line:,} 行第 {byte:,} 字节起",
    ),
    "head": ("its beginning", "开头"),
    "rescued": ("{rescued:,} lines that tell of failures", "{rescued:,} 行报错"),
    "tail": ("its end", "结尾"),
    "none": ("nothing", "无"),
    "and": (", ", "、"),
    "whole": (" The whole is kept in {place}.", " 完整内容保存在 {place}。"),
    "unkept": (" The rest could not be kept.", " 其余内容未能保存。"),
    "subagent": (
        " Give that file to a sub-agent and ask it for what you need.",
        " 可让子代理处理该文件并返回所需信息。",
    ),
    "page": (
        " Read or search that file in parts, from line {line} on, {count} lines at a time.",
        " 可从第 {line} 行起分段读取或搜索该文件，每次 {count} 行。",
    ),
    "page_bytes": (
        " It goes on at byte {byte:,} of line {line:,} of that file.",
        " 后续内容从该文件第 {line:,} 行第 {byte:,} 字节开始。",
    ),
    "shell": (" To go on reading: {command}", " 继续阅读：{command}"),
    "call_whole": (" To get the whole: {call}", " 获取完整内容：{call}"),
    "call": (" The whole is kept; to go on reading: {call}", " 完整内容已保存，继续阅读：{call}"),
    "names": (" Names in what is left out: {names}", " 省略部分中的名称：{names}"),
    "omitted": (
        "{messages:,} earlier messages ({chars:,} characters) are left out here to fit the model's window.",
        "为适应模型的上下文窗口，此处省略了之前的 {messages:,} 条消息（{chars:,} 个字符）。",
    ),
    "arguments": (
        "The middle is left out here to fit the model's window.",
        "为适应模型的上下文窗口，此处省略了中间部分。",
    ),
    "reasoning": (
        "Reasoning of {chars:,} characters is left out here to fit the model's window.",
        "为适应模型的上下文窗口，此处省略了 {chars:,} 个字符的推理内容。",
    ),
    "kept_messages": (" They are kept as JSON in {place}.", " 它们以 JSON 格式保存在 {place}。"),
    "tool_wants": (
        " A client that sends {setting} gets a tool that reads it.",
        " 客户端发送 {setting} 即可获得读取它的工具。",
    ),
    "call_messages": (" They are kept as JSON; to search them: {call}", " 它们以 JSON 格式保存，搜索：{call}"),
    "asked": ("What the user said in them:", "用户在其中所说："),
    "steps": ("What you did (-) and said (>) in them:", "你在其中所做（-）和所说（>）："),
    "told": (
        "Lines of them, under the file or command that they come from, as last seen; … stands for more:",
        "其中部分行如下，列在其来源文件或命令之下，为最近一次所见；… 表示略去：",
    ),
    "ends": ("end of the note{following}", "说明到此结束{following}"),
    "ends_tool": ("; the result of {tool} follows", "；以下是 {tool} 的结果"),
    "ends_result": ("; the result of a tool follows", "；以下是工具的结果"),
    "ends_user": ("; the user's message follows", "；以下是用户的消息"),
    "ends_assistant": ("; your message follows", "；以下是你的消息"),
    "ends_system": ("; the system's message follows", "；以下是系统的消息"),
    "response": ("An excerpt.", "此处为节选。"),
    "replaced": (
        "characters shown as \ufffd here, as the upstream does not take them: {count:,}",
        "上游不接受的字符在此显示为 \ufffd，共 {count:,} 个",
    ),
}
"""Texts that replace the cut or omitted parts of a conversation."""

PAGES: Final[Phrases] = {
    "page": (
        "lines {first}-{last} of {total} of {name}, {shown:,} of {bytes:,} bytes",
        "{name} 共 {total} 行、{bytes:,} 字节，此处为第 {first}-{last} 行，{shown:,} 字节",
    ),
    "cut": ("; the page is full, go on with lines={following}", "；本页已满，请用 lines={following} 继续"),
    "more": ("; go on with lines={following}", "；继续请用 lines={following}"),
    "hits": (
        "{count:,} matches in lines {first}-{last} of {total} of {name}",
        "{name} 共 {total} 行，在第 {first}-{last} 行中找到 {count:,} 处匹配",
    ),
    "stopped": ("; go on with the same search and lines={following}", "；请用相同的搜索和 lines={following} 继续"),
}
"""The first line of a page that was read from an artifact."""

FOUND: Final[Phrases] = {
    "listed": (
        "{shown:,} of {total:,} artifacts, the last used first; read_artifact reads one by its id",
        "共 {total:,} 个工件，此处按最近使用列出 {shown:,} 个；用 read_artifact 按 id 读取",
    ),
    "matches": (
        "{shown:,} of {matching:,} matches in {searched:,} artifacts, from {name} back; read_artifact reads on with id "
        "and lines",
        "从 {name} 起往前搜索了 {searched:,} 个工件，找到 {matching:,} 处匹配，此处显示 {shown:,} 处；"
        "用 read_artifact 加 id 和 lines 继续阅读",
    ),
    "best": ("; those with most words of grep are shown", "；显示包含 grep 中词语最多的匹配"),
    "further": ("; go on with the same search and id={name}", "；请用相同的搜索和 id={name} 继续"),
    "from": (" lines={lines}", " lines={lines}"),
    "in_message": (
        "-- {name} lines={lines}: message {number:,} of {total:,}, {of}",
        "-- {name} lines={lines}：第 {number:,} 条消息，共 {total:,} 条，{of}",
    ),
    "in_result": ("-- {name} lines={lines}: a result of {of}", "-- {name} lines={lines}：{of} 的结果"),
}
"""The first line of what a search found, and the line before each match."""

READING: Final[Phrases] = {
    "unnamed": (
        'read_artifact needs the id of an artifact as a notice names it, and perhaps lines or grep: {{"id": '
        '"tool_bash_0123456789abcdef.txt", "lines": "400-480"}}',
        'read_artifact 需要通知中给出的工件 id，可另加 lines 或 grep：{{"id": "tool_bash_0123456789abcdef.txt", '
        '"lines": "400-480"}}',
    ),
    "failed": ("{name} was not read: {problem}", "未能读取 {name}：{problem}"),
    "unsearched": ("Nothing was searched: {problem}", "未搜索：{problem}"),
    "last": (
        "This was the last of {rounds} readings in one answer: go on with what you have.",
        "一次回答最多读取 {rounds} 次，这是最后一次：请根据已有内容继续。",
    ),
    "many": (
        "Not read: at most {calls} artifacts are read at once. Call again for this one.",
        "未读取：一次最多读取 {calls} 个工件。请再次调用以读取此工件。",
    ),
    "no_room": (
        "Not read: there is no room for a page. Go on with what you have.",
        "未读取：没有空间容纳一页。请根据已有内容继续。",
    ),
    "beside": (
        "read_artifact was called beside another tool; this is what it read:",
        "read_artifact 与其他工具同时被调用，以下是其读取的内容：",
    ),
    "stopped": (
        "(The answer ends here: the model has read its {rounds} pages, and asked for more.)",
        "（回答到此为止：模型已读取 {rounds} 页，并要求继续读取。）",
    ),
    "withheld": (
        "(The answer ends here: the model asked for a page of what was cut, and could not be given it.)",
        "（回答到此为止：模型要求读取被截去内容中的一页，但无法提供。）",
    ),
    "broken": (
        "(The answer ends here: the model read a part of what was cut, and the request to go on with it failed: "
        "{problem}.)",
        "（回答到此为止：模型读取了被截去内容的一部分，但继续回答的请求失败：{problem}。）",
    ),
}
"""The other texts of the proxy's own tool."""

HISTORY: Final[Phrases] = {
    "lacking": (
        "(This call has no result: the run was interrupted before there was one.)",
        "（此调用没有结果：运行在得到结果之前被中断。）",
    ),
    "arguments": (
        "(The arguments of this call were no JSON: {written})",
        "（此调用的参数不是 JSON：{written}）",
    ),
    "empty": ("(empty)", "（空）"),
    "go_on": ("(Go on.)", "（请继续。）"),
    "compacted": (
        "(An earlier part of this conversation was compacted by another model or account, and cannot be read here.)",
        "（此对话较早的部分由其他模型或账户压缩，在此无法读取。）",
    ),
}
"""Texts in repaired histories."""

BAD_QUERIES: Final[Phrases] = {
    "lines": ("{message}", '`lines` 应写作 "400-480"、"400-" 或 "-80"，从 1 起计，末行不得在首行之前'),
    "grep": ("{message}", "`grep` 须为 1 至 {most} 个字符的 RE2 正则表达式，不得含环视或反向引用"),
    "tool": ("{message}", "`tool` 须为文本：工具的名称"),
    "context": ("{message}", "`context` 须为 0 至 {most} 的整数，且只能与 `grep` 同用"),
}
"""Why an artifact was not read, by the parameter that is wrong. In English the error itself says it."""

NOT_READ: Final[Phrases] = {
    "ArtifactNotFound": ("{message}", "没有此工件，或它属于另一个密钥，或已过保存期"),
    "ArtifactStoreUnavailable": ("{message}", "工件存储暂时不可用，请稍后再试，或根据已有内容继续"),
    "RangeOutside": ("{message}", '工件中没有所要的行或字节；不带 lines 可从头读取，lines="-80" 可读取末尾'),
    "BadArtifactQuery": ("{message}", "`lines` 和 `grep` 只能读取文本，此工件不是文本"),
    "other": ("{message}", "{code}"),
}
"""Phrases by the kind of the error."""

MEDIA: Final[Phrases] = {
    "title": ("[cannot read] {name}", "[无法读取] {name}"),
    "type": ("Type: {kind}{facts}", "类型：{kind}{facts}"),
    "fact": (", {fact}", "，{fact}"),
    "pixels": ("{width} x {height} pixels", "{width} x {height} 像素"),
    "address": ("Address: {address}", "地址：{address}"),
    "unkept": (" It could not be kept.", " 它未能保存。"),
    "subagent": (
        " Consider handing it to a sub-agent that can read such files.",
        " 建议创建具备相应能力的智能体协助处理。",
    ),
    "shown_here": (
        "[{kind} {number} of this message is shown behind this text{file}]",
        "[本消息的第 {number} 个附件（{kind}）显示在此文本之后{file}]",
    ),
    "shown_behind": (
        "[{kind} {number} of this result is shown in the user message behind the tool results{file}]",
        "[此结果的第 {number} 个附件（{kind}）显示在工具结果之后的用户消息中{file}]",
    ),
    "of_result": ("[attachment {number} of the result of {tool}{file}]", "[{tool} 结果的第 {number} 个附件{file}]"),
    "of_call": (
        "[attachment {number} of the result of {tool}, call {call}{file}]",
        "[{tool} 结果（调用 {call}）的第 {number} 个附件{file}]",
    ),
    "file": (": {name}", "：{name}"),
    "file_kept": ("{file}, kept in {place}", "{file}，保存在 {place}"),
    "of_file": ("[image{file}]", "[图片{file}]"),
    "a_tool": ("a tool", "工具"),
    "spoken": ("I look at what the tools have returned.", "我来看一下工具返回的内容。"),
}
"""Texts that replace media or accompany them."""

WHY_NOT_SHOWN: Final[Phrases] = {
    "model": ("The current model cannot read this kind of file.", "当前模型无法读取此类文件。"),
    "in_text": (
        "It was written into a text as base64, which no model can read.",
        "它以 base64 形式写在文本中，模型无法读取。",
    ),
    "unstated": (
        "It is not known whether the current model can read this kind of file.",
        "尚不清楚当前模型能否读取此类文件。",
    ),
    "broken": ("Its base64 is broken or incomplete.", "其 base64 数据已损坏或不完整。"),
    "empty": ("It is empty.", "其内容为空。"),
    "too_large": ("It is over the limit of {limit}.", "它超过了 {limit} 的上限。"),
    "too_many_pixels": ("It is over the limit of {limit:,} pixels.", "它超过了 {limit:,} 像素的上限。"),
    "too_many": ("There are more images than can be shown at once.", "图片数量超过了可同时显示的上限。"),
    "too_many_files": ("There are more files than can be shown at once.", "文件数量超过了可同时显示的上限。"),
    "too_long_a_side": ("A side of it is over the limit of {limit:,} pixels.", "其边长超过了 {limit:,} 像素的上限。"),
    "format": ("Models do not read this format.", "模型不读取此格式。"),
    "refused": ("The model's server could not process it.", "模型服务器无法处理它。"),
    "place": ("It cannot be shown in this message.", "它无法在此消息中显示。"),
    "forced": (
        "It was decoded as text, which has damaged it: read the file as binary instead.",
        "它被当作文本解码，内容已损坏：请改为以二进制方式读取该文件。",
    ),
    "encoding": ("It is text in an encoding other than Unicode.", "它是文本，但不是 Unicode 编码。"),
    "long_text": ("It is text, too long to be shown here.", "它是文本，过长而未在此显示。"),
}
"""Why media are not shown, by `OmissionReason`."""

FETCHES: Final[Phrases] = {
    "title": ("[cannot fetch] {address}", "[无法获取] {address}"),
    "status": ("Status: failed", "状态：失败"),
    "http_code": ("HTTP code: {http_code}", "HTTP 状态码：{http_code}"),
    "final_url": ("final URL: {final_url}", "最终地址：{final_url}"),
    "content_type": ("content type: {content_type}", "内容类型：{content_type}"),
    "reason": ("Likely reason: {reason}.", "可能的原因：{reason}。"),
    "kept_in": (" The image would have been kept in {kept_in}.", " 图片原本会保存在 {kept_in}。"),
    "and": ("; ", "；"),
}
"""The text that replaces an image that could not be fetched."""

WHY_NOT_FETCHED: Final[Phrases] = {
    "bad_address": (
        "this is not a plain http or https address; one with a password, an unusual port or another scheme is not "
        "fetched",
        "这不是普通的 http 或 https 地址；带密码、非常用端口或其他协议的地址不会被获取",
    ),
    "private_address": (
        "it leads into a private network, from which nothing is fetched",
        "该地址指向私有网络，不会从中获取内容",
    ),
    "unknown_host": ("the host name has no address; it may be misspelled", "主机名无法解析，可能拼写有误"),
    "unreachable": ("the server took no connection", "服务器未接受连接"),
    "insecure": ("the TLS certificate of the server is not valid", "服务器的 TLS 证书无效"),
    "timeout": ("the server was too slow", "服务器响应过慢"),
    "broken": ("the answer of the server broke off or was garbled", "服务器的响应中断或无法解析"),
    "too_many_redirects": ("too many redirects, perhaps in a circle", "重定向次数过多，可能是循环"),
    "access_denied": (
        "access denied: a login, a signature or a permission is missing, or programs are kept out",
        "访问被拒绝：可能缺少登录、签名或权限，或服务器拒绝程序访问",
    ),
    "not_found": ("there is nothing at this address (any more)", "该地址没有内容，或内容已被删除"),
    "rate_limited": ("the server gets too many requests", "服务器收到的请求过多"),
    "server_error": ("the server has a fault of its own", "服务器自身出错"),
    "http_error": ("the server refused the request", "服务器拒绝了该请求"),
    "not_an_image": (
        "this is not an image, perhaps a web page that shows it or asks for a login",
        "内容不是图片，可能是展示图片或要求登录的网页",
    ),
    "too_large": ("the image is too large", "图片过大"),
    "empty": ("the answer was empty", "服务器返回的内容为空"),
}
"""Why an image could not be fetched, by `FetchError`."""

FETCH_LIMITS: Final[Phrases] = {
    "timeout": (" (over {limit:g} seconds)", "（超过 {limit:g} 秒）"),
    "too_large": (" (over {limit:,.0f} bytes)", "（超过 {limit:,.0f} 字节）"),
    "too_many_redirects": (" (over {limit:g})", "（超过 {limit:g} 次）"),
}
"""The limit that was exceeded, by `FetchError`."""

TYPES: Final[Phrases] = {
    "image/png": ("PNG image", "PNG 图片"),
    "image/jpeg": ("JPEG image", "JPEG 图片"),
    "image/gif": ("GIF image", "GIF 图片"),
    "image/webp": ("WebP image", "WebP 图片"),
    "image/bmp": ("BMP image", "BMP 图片"),
    "image/svg+xml": ("SVG image", "SVG 图片"),
    "image/avif": ("AVIF image", "AVIF 图片"),
    "image/heic": ("HEIC image", "HEIC 图片"),
    "image/tiff": ("TIFF image", "TIFF 图片"),
    "image/x-icon": ("icon", "图标"),
    "image/jxl": ("JPEG XL image", "JPEG XL 图片"),
    "image/jp2": ("JPEG 2000 image", "JPEG 2000 图片"),
    "image/vnd.adobe.photoshop": ("Photoshop image", "Photoshop 图片"),
    "audio/mpeg": ("MP3 audio", "MP3 音频"),
    "audio/wav": ("WAV audio", "WAV 音频"),
    "audio/ogg": ("Ogg audio", "Ogg 音频"),
    "audio/flac": ("FLAC audio", "FLAC 音频"),
    "audio/mp4": ("M4A audio", "M4A 音频"),
    "audio/aac": ("AAC audio", "AAC 音频"),
    "audio/aiff": ("AIFF audio", "AIFF 音频"),
    "audio/amr": ("AMR audio", "AMR 音频"),
    "audio/midi": ("MIDI music", "MIDI 音乐"),
    "audio/x-ms-wma": ("WMA audio", "WMA 音频"),
    "audio/webm": ("WebM audio", "WebM 音频"),
    "audio/x-matroska": ("Matroska audio", "Matroska 音频"),
    "video/mp4": ("MP4 video", "MP4 视频"),
    "video/webm": ("WebM video", "WebM 视频"),
    "video/quicktime": ("QuickTime video", "QuickTime 视频"),
    "video/x-matroska": ("Matroska video", "Matroska 视频"),
    "video/x-msvideo": ("AVI video", "AVI 视频"),
    "video/ogg": ("Ogg video", "Ogg 视频"),
    "video/mpeg": ("MPEG video", "MPEG 视频"),
    "video/mp2t": ("MPEG transport stream", "MPEG 传输流"),
    "video/3gpp": ("3GP video", "3GP 视频"),
    "video/x-flv": ("Flash video", "Flash 视频"),
    "video/x-ms-wmv": ("Windows Media video", "Windows Media 视频"),
    "application/pdf": ("PDF document", "PDF 文档"),
    "application/msword": ("Word document (97-2003)", "Word 文档（97-2003）"),
    "application/vnd.ms-excel": ("Excel spreadsheet (97-2003)", "Excel 表格（97-2003）"),
    "application/vnd.ms-powerpoint": ("PowerPoint presentation (97-2003)", "PowerPoint 演示（97-2003）"),
    "application/vnd.ms-outlook": ("Outlook message", "Outlook 邮件"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("Word document", "Word 文档"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("Excel spreadsheet", "Excel 表格"),
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": (
        "PowerPoint presentation",
        "PowerPoint 演示",
    ),
    "application/vnd.oasis.opendocument.text": ("OpenDocument text", "OpenDocument 文本文档"),
    "application/vnd.oasis.opendocument.spreadsheet": ("OpenDocument spreadsheet", "OpenDocument 电子表格"),
    "application/vnd.oasis.opendocument.presentation": ("OpenDocument presentation", "OpenDocument 演示文稿"),
    "application/vnd.oasis.opendocument.graphics": ("OpenDocument drawing", "OpenDocument 绘图"),
    "application/epub+zip": ("EPUB book", "EPUB 电子书"),
    "application/rtf": ("RTF document", "RTF 文档"),
    "application/postscript": ("PostScript document", "PostScript 文档"),
    "text/plain": ("plain text", "纯文本"),
    "text/csv": ("CSV table", "CSV 表格"),
    "text/markdown": ("Markdown text", "Markdown 文本"),
    "text/html": ("HTML page", "HTML 网页"),
    "application/json": ("JSON data", "JSON 数据"),
    "application/xml": ("XML data", "XML 数据"),
    "application/yaml": ("YAML data", "YAML 数据"),
    "message/rfc822": ("e-mail message", "电子邮件"),
    "application/zip": ("ZIP archive", "ZIP 压缩包"),
    "application/vnd.rar": ("RAR archive", "RAR 压缩包"),
    "application/x-7z-compressed": ("7-Zip archive", "7-Zip 压缩包"),
    "application/gzip": ("gzip archive", "gzip 压缩文件"),
    "application/x-xz": ("xz archive", "xz 压缩文件"),
    "application/x-bzip2": ("bzip2 archive", "bzip2 压缩文件"),
    "application/zstd": ("Zstandard archive", "Zstandard 压缩文件"),
    "application/x-tar": ("tar archive", "tar 归档"),
    "application/x-executable": ("executable program", "可执行程序"),
    "application/vnd.microsoft.portable-executable": ("Windows program", "Windows 程序"),
    "application/vnd.sqlite3": ("SQLite database", "SQLite 数据库"),
}
"""Everyday names of types; a type without one is called by its kind."""

KINDS: Final[Phrases] = {
    "image": ("image", "图片"),
    "audio": ("audio", "音频"),
    "video": ("video", "视频"),
    "document": ("document", "文档"),
    "text": ("text", "文本"),
    "other": ("binary file", "二进制文件"),
}
"""Everyday names of kinds, by `ContentKind`."""

SIZES: Final[Phrases] = {
    "byte": ("{count} byte", "{count} 字节"),
    "bytes": ("{count} bytes", "{count} 字节"),
}
"""How people write fewer than a thousand bytes."""


TOOL: Final[Mapping[str, str]] = {
    "what": "Reads what [context-proxy: notices say was cut or left out. grep without id searches all of it; id with "
    "lines reads on. Call it alone.",
    "id": "From a notice or match",
    "lines": "400-480 or -80",
    "grep": "Regex or words",
    "json": "JSON Pointer",
}
"""Description and parameters of the proxy's own tool; English whatever the language of the notices, like the names in
it."""

SEARCH_TOOL: Final[Mapping[str, str]] = {
    "what": "Finds what was cut from tool results or left out of conversations: searches all of it for a regular "
    "expression, or without one lists it, the last used first. read_artifact then reads on.",
    "grep": "A regular expression (RE2): lines that match, numbered, under the id of their artifact",
    "tool": "Only results of the tool of this name, such as Bash",
    "context": "With grep: lines around each match, 0 by default",
}
"""Description and parameters of the search tool."""
