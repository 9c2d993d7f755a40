"""Everything that can go wrong, and the HTTP status and code it has in OpenAI's error shape.

    ProxyError                    status, code
    ├── ServerStopping 503 · TooManyConnections 503 · LoopDetected 508
    ├── CompressionFailed 503 · CompressionTimeout 503
    ├── ClientError    MalformedRequest 400 · UnknownPath 404 · BodyTooLarge 413 · ContextOverflow 400 · ClientLeft 499
    │                  RequestTimeout 408 · UpgradeRefused 426 · HeadTooLarge 431
    │                  BadArtifactQuery 400 · MissingKey 401 · MethodNotAllowed 405 · RangeOutside 416
    │                  KeyNeeded 401 · NotFromHere 403 · UnknownDecision 404 · SettingsRefused 422
    ├── UpstreamError  UpstreamUnreachable 502 · UpstreamEmpty 502 · UpstreamTimeout 504
    └── ArtifactError  ArtifactNotFound 404 · ArtifactStoreUnavailable 503

Raised by meaning; turned into a response in one place, `shell/endpoints/dispatch.py`. A message says what was measured
and what is allowed, and never holds a key or the content of a message.
"""

from __future__ import annotations

from typing import ClassVar


class ProxyError(Exception):
    """Something the proxy itself has to tell the client."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "proxy_error"
    type: ClassVar[str] = "proxy_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ServerStopping(ProxyError):
    """The grace time for running requests is over."""

    status = 503
    code = "server_stopping"


class TooManyConnections(ProxyError):
    """As many clients are connected as may be, and each waits for an answer."""

    status = 503
    code = "too_many_connections"


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
    """The body is not a chat request that anything upstream could judge."""

    code = "malformed_request"


class UnknownPath(ClientError):
    """A path that the proxy does not serve."""

    status = 404
    code = "unknown_path"


class UpgradeRefused(ClientError):
    """A WebSocket, asked for where plain requests are answered."""

    status = 426
    code = "upgrade_refused"


class KeyNeeded(ClientError):
    """A page for the operator, asked for from elsewhere without the operator's key."""

    status = 401
    code = "key_needed"


class NotFromHere(ClientError):
    """A page for the operator, asked for in a way that only another machine or a foreign web page would."""

    status = 403
    code = "not_from_here"


class UnknownDecision(ClientError):
    """No request of that id is remembered."""

    status = 404
    code = "unknown_decision"


class SettingsRefused(ClientError):
    """The settings were to be read again, and are wrong or cannot work; one line for each mistake."""

    status = 422
    code = "settings_refused"


class HeadTooLarge(ClientError):
    """The request line and headers have more bytes or lines than are read."""

    status = 431
    code = "head_too_large"


class RequestTimeout(ClientError):
    """The client took longer over its request than a configured time."""

    status = 408
    code = "request_timeout"


class BodyTooLarge(ClientError):
    """The body is larger than `server.max_body_bytes`."""

    status = 413
    code = "body_too_large"


class ContextOverflow(ClientError):
    """What has to stay in the request does not fit into the model's window."""

    code = "context_length_exceeded"

    def __init__(self, message: str, *, param: str | None = None, upstream_message: str | None = None) -> None:
        super().__init__(message, param=param)
        self.upstream_message = upstream_message
        """What the upstream said, when it was the one that refused."""


class BadArtifactQuery(ClientError):
    """A way of reading an artifact that there is not."""

    code = "bad_artifact_query"


class MissingKey(ClientError):
    """The artifact may belong to a key, and the request carries none."""

    status = 401
    type = "authentication_error"
    code = "missing_key"


class MethodNotAllowed(ClientError):
    """A path that the proxy serves, but not so."""

    status = 405
    code = "method_not_allowed"


class RangeOutside(ClientError):
    """Bytes or lines that the artifact does not have."""

    status = 416
    code = "range_not_satisfiable"


class ClientLeft(ClientError):
    """The client closed its connection; nobody reads the answer. 499 is nginx's code for it, seen only in the log."""

    status = 499
    code = "client_left"


class UpstreamError(ProxyError):
    """The upstream gave no answer that could be passed on."""

    type = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No connection, or one that broke before an answer or in its middle."""

    status = 502
    code = "upstream_unreachable"


class UpstreamEmpty(UpstreamError):
    """Answers that hold nothing, to the request and to a shorter one."""

    status = 502
    code = "upstream_empty"


class UpstreamTimeout(UpstreamError):
    """The upstream took longer than a configured time."""

    status = 504
    code = "upstream_timeout"


class ArtifactError(ProxyError):
    """Content that was taken out of a request cannot be kept or had back."""

    type = "artifact_error"


class ArtifactNotFound(ArtifactError):
    """No such artifact, or not this key's, or its time is over."""

    status = 404
    code = "artifact_not_found"


class ArtifactStoreUnavailable(ArtifactError):
    """The store cannot be read or written now."""

    status = 503
    code = "artifact_store_unavailable"
