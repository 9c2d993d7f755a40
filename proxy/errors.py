"""Everything that can go wrong, with its HTTP status and its code in OpenAI's error shape.

    ProxyError                    status, code
    ├── ServerStopping 503 · TooManyConnections 503 · TooManyListeners 503 · LoopDetected 508
    ├── CompressionFailed 503 · CompressionTimeout 503
    ├── ClientError    MalformedRequest 400 · UnknownPath 404 · BodyTooLarge 413 · ContextOverflow 400 · ClientLeft 499
    │                  RequestTimeout 408 · UpgradeRefused 426 · HeadTooLarge 431 · UnknownCoding 501 · NoTunnel 501
    │                  BadArtifactQuery 400 · MissingKey 401 · MethodNotAllowed 405 · RangeOutside 416
    │                  KeyNeeded 401 · WrongKey 401 · NotFromHere 403 · UnknownDecision 404 · SettingsRefused 422
    ├── UpstreamError  UpstreamUnreachable 502 · UpstreamEmpty 502 · UpstreamTimeout 504
    └── ArtifactError  ArtifactNotFound 404 · ArtifactStoreUnavailable 503

Raised by meaning; turned into a response in one place, `shell/endpoints/responses.py`. A message says what was
measured and what is allowed, and never holds a key or the content of a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class ProxyError(Exception):
    """An error that the proxy itself reports to the client."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "proxy_error"
    type: ClassVar[str] = "proxy_error"

    headers: Mapping[str, str] = MappingProxyType({})
    """Headers of the response that reports it."""

    def __init__(self, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if headers is not None:
            self.headers = headers


class ServerStopping(ProxyError):
    """The grace time for running requests is over."""

    status = 503
    code = "server_stopping"


class TooManyConnections(ProxyError):
    """The maximum of clients is connected, and each waits for a response."""

    status = 503
    code = "too_many_connections"


class TooManyListeners(ProxyError):
    """The maximum of dashboards follow what happens, each on a connection of its own."""

    status = 503
    code = "too_many_listeners"


class LoopDetected(ProxyError):
    """The request has been here before: the upstream leads back to this proxy."""

    status = 508
    code = "loop_detected"


class CompressionFailed(ProxyError):
    """`/v1/compress` met a defect of the proxy; its callers take a 503 for that."""

    status = 503
    code = "compression_error"


class CompressionTimeout(ProxyError):
    """`/v1/compress` took longer than its callers wait."""

    status = 503
    code = "compression_timeout"


class ClientError(ProxyError):
    """The request is at fault, or its sender is gone."""

    status = 400
    type = "invalid_request_error"


class MalformedRequest(ClientError):
    """The body is not a chat request that an upstream could judge."""

    code = "malformed_request"


class UnknownPath(ClientError):
    """A path that the proxy does not serve."""

    status = 404
    code = "unknown_path"


class UpgradeRefused(ClientError):
    """A WebSocket request to a path that takes plain requests."""

    status = 426
    code = "upgrade_refused"


class KeyNeeded(ClientError):
    """An operator page requested without the operator's key, where one is needed."""

    status = 401
    code = "key_needed"
    headers = MappingProxyType({"www-authenticate": 'Basic realm="context-proxy", charset="UTF-8"'})


class WrongKey(KeyNeeded):
    """An operator page requested with another key than the operator's."""

    code = "wrong_key"


class NotFromHere(ClientError):
    """A request made in a way that only another machine or a foreign web page would use."""

    status = 403
    code = "not_from_here"


class UnknownDecision(ClientError):
    """No request with this id is remembered."""

    status = 404
    code = "unknown_decision"


class SettingsRefused(ClientError):
    """Settings that were about to be reloaded are invalid or cannot work; one line for each mistake."""

    status = 422
    code = "settings_refused"


class HeadTooLarge(ClientError):
    """The request line and headers have more bytes or lines than the proxy reads."""

    status = 431
    code = "head_too_large"


class UnknownCoding(ClientError):
    """The body has a transfer coding besides `chunked`."""

    status = 501
    code = "unknown_coding"


class RequestTimeout(ClientError):
    """The client sent its request more slowly than a setting allows."""

    status = 408
    code = "request_timeout"
    headers = MappingProxyType({"connection": "close"})  # no other request can follow in the middle of one


class BodyTooLarge(ClientError):
    """The body is larger than `server.max_body_bytes`."""

    status = 413
    code = "body_too_large"


class ContextOverflow(ClientError):
    """The part of the request that must stay does not fit into the model's window."""

    code = "context_length_exceeded"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        upstream_message: str | None = None,
        sizes: tuple[int, int] | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(message, param=param)
        self.upstream_message = upstream_message
        """The upstream's message, if the upstream refused."""
        self.sizes = sizes
        """Tokens of the prompt as received, and the maximum, which is smaller."""
        self.advice = advice or message
        """The message without those sizes, for a wire that has its own words for them."""


class BadArtifactQuery(ClientError):
    """An unknown way of reading an artifact."""

    code = "bad_artifact_query"


class MissingKey(ClientError):
    """The artifact may belong to a key, and the request has none."""

    status = 401
    type = "authentication_error"
    code = "missing_key"
    headers = MappingProxyType({"www-authenticate": "Bearer"})


class MethodNotAllowed(ClientError):
    """A path that the proxy serves, but not with this method."""

    status = 405
    code = "method_not_allowed"


class NoTunnel(ClientError):
    """A CONNECT, which asks for a tunnel to another server: RFC 9110 9.3.6."""

    status = 501
    code = "no_tunnel"


class RangeOutside(ClientError):
    """Bytes or lines that the artifact does not have."""

    status = 416
    code = "range_not_satisfiable"


class ClientLeft(ClientError):
    """The client closed its connection before the response ended. 499 is nginx's code for it, seen only in the log."""

    status = 499
    code = "client_left"


class UpstreamError(ProxyError):
    """The upstream gave no response that could be passed on."""

    type = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No connection, or one that broke before or during a response."""

    status = 502
    code = "upstream_unreachable"


class UpstreamEmpty(UpstreamError):
    """Empty responses, both to the request and to a shorter one."""

    status = 502
    code = "upstream_empty"


class UpstreamTimeout(UpstreamError):
    """The upstream took longer than a setting allows."""

    status = 504
    code = "upstream_timeout"


class ArtifactError(ProxyError):
    """Content taken out of a request cannot be stored or read back."""

    type = "artifact_error"


class ArtifactNotFound(ArtifactError):
    """No such artifact, or it belongs to another key, or it has expired."""

    status = 404
    code = "artifact_not_found"


class ArtifactStoreUnavailable(ArtifactError):
    """The store cannot be read or written now."""

    status = 503
    code = "artifact_store_unavailable"
