"""What a call can end with instead of an answer."""

from __future__ import annotations


class Error(Exception):
    """A call without an answer. ``code`` is one of the gateway's codes, or one of this client's: not_connected,
    connection_failed, stream_broken."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 0,
        request_id: str = "",
        retry_after: float | None = None,
        query_id: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status  # of HTTP; 0: there was no answer, or the error is that of one query of a batch
        self.request_id = request_id  # names the request in the gateway's log
        self.retry_after = retry_after  # seconds, if the gateway said so
        self.query_id = query_id  # of a query of a batch

    def __str__(self) -> str:
        named = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.message}{named}"


class InvalidRequest(Error):
    """The request is malformed, too large, or does not fit the function."""


class NotFound(Error):
    """There is no such function or query."""


class Forbidden(Error):
    """The caller may not do this."""


class ModelFailed(Error):
    """The model raised, answered something else than it declares, or was lost."""


class Unavailable(Error):
    """The gateway cannot answer now: it is overloaded, or no replica is ready."""


class DeadlineExceeded(Error):
    """There was no prediction within the latency objective, or no answer within the timeout."""


class ConnectionFailed(Error):
    """There was no connection to the gateway, or it broke off."""


class StreamBroken(Error):
    """A stream has stopped before its end."""


BY_CODE: dict[str, type[Error]] = {
    "invalid_argument": InvalidRequest,
    "invalid_input": InvalidRequest,
    "too_large": InvalidRequest,
    "unsupported": InvalidRequest,
    "not_found": NotFound,
    "gone": NotFound,
    "forbidden": Forbidden,
    "unauthorized": Forbidden,
    "model_error": ModelFailed,
    "bad_output": ModelFailed,
    "replica_lost": ModelFailed,
    "overloaded": Unavailable,
    "no_replica": Unavailable,
    "shutting_down": Unavailable,
    "model_removed": Unavailable,
    "low_confidence": Unavailable,
    "unavailable": Unavailable,
    "deadline_exceeded": DeadlineExceeded,
}
