"""What a model reads in the place of an image that could not be fetched, in English and Chinese.

Rule: as in `notices.py`. Of what a foreign server says only a status, a media type and an address without its query are
shown: none of them can hold a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from proxy.core.conversation.references import FetchError, Unfetched
from proxy.core.notices.catalogue import Language

_USER_AND_PASSWORD: Final = re.compile(r"(?<=//)[^/?#]*@")
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "title": ("[cannot fetch] {address}", "[无法获取] {address}"),
    "status": ("Status: failed", "状态：失败"),
    "http_code": ("HTTP code: {http_code}", "HTTP 状态码：{http_code}"),
    "final_url": ("final URL: {final_url}", "最终地址：{final_url}"),
    "content_type": ("content type: {content_type}", "内容类型：{content_type}"),
    "reason": ("Likely reason: {reason}.", "可能的原因：{reason}。"),
    "kept_in": (" The image would have been kept in {kept_in}.", " 图片原本会保存在 {kept_in}。"),
}
_LIMITS: Final[Mapping[FetchError, tuple[str, str]]] = {
    FetchError.TIMEOUT: (" (over {limit:g} seconds)", "（超过 {limit:g} 秒）"),
    FetchError.TOO_LARGE: (" (over {limit:,.0f} bytes)", "（超过 {limit:,.0f} 字节）"),
    FetchError.TOO_MANY_REDIRECTS: (" (over {limit:g})", "（超过 {limit:g} 次）"),
}
_REASONS: Final[Mapping[FetchError, tuple[str, str]]] = {
    FetchError.BAD_ADDRESS: (
        "this is not a plain http or https address; one with a password, an unusual port or another scheme is not "
        "fetched",
        "这不是普通的 http 或 https 地址；带密码、非常用端口或其他协议的地址不会被获取",
    ),
    FetchError.PRIVATE_ADDRESS: (
        "it leads into a private network, from which nothing is fetched",
        "该地址指向私有网络，不会从中获取内容",
    ),
    FetchError.UNKNOWN_HOST: (
        "the host name has no address; it may be misspelled",
        "主机名无法解析，可能拼写有误",
    ),
    FetchError.UNREACHABLE: ("the server took no connection", "服务器未接受连接"),
    FetchError.INSECURE: ("the TLS certificate of the server is not valid", "服务器的 TLS 证书无效"),
    FetchError.TIMEOUT: ("the server was too slow", "服务器响应过慢"),
    FetchError.BROKEN: ("the answer of the server broke off or was garbled", "服务器的响应中断或无法解析"),
    FetchError.TOO_MANY_REDIRECTS: ("too many redirects, perhaps in a circle", "重定向次数过多，可能是循环"),
    FetchError.ACCESS_DENIED: (
        "access denied: a login, a signature or a permission is missing, or programs are kept out",
        "访问被拒绝：可能缺少登录、签名或权限，或服务器拒绝程序访问",
    ),
    FetchError.NOT_FOUND: (
        "there is nothing at this address (any more)",
        "该地址没有内容，或内容已被删除",
    ),
    FetchError.RATE_LIMITED: ("the server gets too many requests", "服务器收到的请求过多"),
    FetchError.SERVER_ERROR: ("the server has a fault of its own", "服务器自身出错"),
    FetchError.HTTP_ERROR: ("the server refused the request", "服务器拒绝了该请求"),
    FetchError.NOT_AN_IMAGE: (
        "this is not an image, perhaps a web page that shows it or asks for a login",
        "内容不是图片，可能是展示图片或要求登录的网页",
    ),
    FetchError.TOO_LARGE: ("the image is too large", "图片过大"),
    FetchError.EMPTY: ("the answer was empty", "服务器返回的内容为空"),
}


def not_fetched(address: str, unfetched: Unfetched, language: Language, kept_in: str = "") -> str:
    """The diagnosis for one address. `kept_in`: where the image would be now, as the agent sees it.

    >>> print(not_fetched("https://example.org/a", Unfetched(FetchError.NOT_FOUND, 404, "https://example.org/b"), "en"))
    [cannot fetch] https://example.org/a
    Status: failed; HTTP code: 404; final URL: https://example.org/b
    Likely reason: there is nothing at this address (any more).
    """
    column = 0 if language == "en" else 1

    def say(key: str, **values: object) -> str:
        return _WORDS[key][column].format(**values)

    facts = [say("status")]
    if unfetched.http_code is not None:
        facts.append(say("http_code", http_code=unfetched.http_code))
    if unfetched.final_url:
        facts.append(say("final_url", final_url=unfetched.final_url))
    if unfetched.content_type:
        facts.append(say("content_type", content_type=unfetched.content_type))
    reason = _REASONS[unfetched.obstacle][column]
    if unfetched.limit is not None and unfetched.obstacle in _LIMITS:
        reason += _LIMITS[unfetched.obstacle][column].format(limit=unfetched.limit)
    title = say("title", address=_USER_AND_PASSWORD.sub("", address))
    joined = ("; " if language == "en" else "；").join(facts)
    return f"{title}\n{joined}\n{say('reason', reason=reason)}{say('kept_in', kept_in=kept_in) if kept_in else ''}"
