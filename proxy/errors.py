"""Everything that can go wrong, each with its HTTP status. Each has a code in OpenAI's error shape.

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

    def __init_subclass__(cls, status: int | None = None, code: str | None = None, type: str | None = None) -> None:
        """What a kind of error does not state is as in the kind above it."""
        cls.status, cls.code, cls.type = status or cls.status, code or cls.code, type or cls.type

    def __init__(self, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if headers is not None:
            self.headers = headers


class ServerStopping(ProxyError, status=503, code="server_stopping"):
    """The grace time for running requests is over."""


class TooManyConnections(ProxyError, status=503, code="too_many_connections"):
    """The maximum of clients is connected, and each waits for a response."""


class TooManyListeners(ProxyError, status=503, code="too_many_listeners"):
    """The maximum of dashboards follow what happens, each on a connection of its own."""


class LoopDetected(ProxyError, status=508, code="loop_detected"):
    """The request has been here before: the upstream leads back to this proxy."""


class CompressionFailed(ProxyError, status=503, code="compression_error"):
    """`/v1/compress` met a defect of the proxy; its callers take a 503 for that."""


class CompressionTimeout(ProxyError, status=503, code="compression_timeout"):
    """`/v1/compress` took longer than its callers wait."""


class ClientError(ProxyError, status=400, type="invalid_request_error"):
    """The request is at fault, or its sender is gone."""


class MalformedRequest(ClientError, code="malformed_request"):
    """The body is not a chat request that an upstream could judge."""


class UnknownPath(ClientError, status=404, code="unknown_path"):
    """A path that the proxy does not serve."""


class UpgradeRefused(ClientError, status=426, code="upgrade_refused"):
    """A WebSocket request to a path that takes plain requests."""


class KeyNeeded(ClientError, status=401, code="key_needed"):
    """An operator page requested without the operator's key, where one is needed."""

    headers = MappingProxyType({"www-authenticate": 'Basic realm="context-proxy", charset="UTF-8"'})


class WrongKey(KeyNeeded, code="wrong_key"):
    """An operator page requested with another key than the operator's."""


class NotFromHere(ClientError, status=403, code="not_from_here"):
    """A request made in a way that only another machine or a foreign web page would use."""


class UnknownDecision(ClientError, status=404, code="unknown_decision"):
    """No request with this id is remembered."""


class SettingsRefused(ClientError, status=422, code="settings_refused"):
    """Settings that were about to be reloaded are invalid or cannot work; one line for each mistake."""


class HeadTooLarge(ClientError, status=431, code="head_too_large"):
    """The request line and headers have more bytes or lines than the proxy reads."""


class UnknownCoding(ClientError, status=501, code="unknown_coding"):
    """The body has a transfer coding besides `chunked`."""


class RequestTimeout(ClientError, status=408, code="request_timeout"):
    """The client sent its request more slowly than a setting allows."""

    headers = MappingProxyType({"connection": "close"})  # no other request can follow in the middle of one


class BodyTooLarge(ClientError, status=413, code="body_too_large"):
    """The body is larger than `server.max_body_bytes`."""


class ContextOverflow(ClientError, code="context_length_exceeded"):
    """The part of the request that must stay does not fit into the model's window."""

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


class BadArtifactQuery(ClientError, code="bad_artifact_query"):
    """An unknown way of reading an artifact."""


class MissingKey(ClientError, status=401, code="missing_key", type="authentication_error"):
    """The artifact may belong to a key, and the request has none."""

    headers = MappingProxyType({"www-authenticate": "Bearer"})


class MethodNotAllowed(ClientError, status=405, code="method_not_allowed"):
    """A path that the proxy serves, but not with this method."""


class NoTunnel(ClientError, status=501, code="no_tunnel"):
    """A CONNECT, which asks for a tunnel to another server: RFC 9110 9.3.6."""


class RangeOutside(ClientError, status=416, code="range_not_satisfiable"):
    """Bytes or lines that the artifact does not have."""


class ClientLeft(ClientError, status=499, code="client_left"):
    """The client closed its connection before the response ended. 499 is nginx's code for it, seen only in the log."""


class UpstreamError(ProxyError, type="upstream_error"):
    """The upstream gave no response that could be passed on."""


class UpstreamUnreachable(UpstreamError, status=502, code="upstream_unreachable"):
    """No connection, or one that broke before or during a response."""


class UpstreamEmpty(UpstreamError, status=502, code="upstream_empty"):
    """Empty responses, both to the request and to a shorter one."""


class UpstreamTimeout(UpstreamError, status=504, code="upstream_timeout"):
    """The upstream took longer than a setting allows."""


class ArtifactError(ProxyError, type="artifact_error"):
    """Content taken out of a request cannot be stored or read back."""


class ArtifactNotFound(ArtifactError, status=404, code="artifact_not_found"):
    """No such artifact, or it belongs to another key, or it has expired."""


class ArtifactStoreUnavailable(ArtifactError, status=503, code="artifact_store_unavailable"):
    """The store cannot be read or written now."""
