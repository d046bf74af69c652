"""Calls functions of a Xebec gateway.

    from xebec_client import Client

    with Client("http://localhost:1337") as client:
        client.predict("digits", [0, 0, 5, ...]).output

``Client`` is for threads, ``AsyncClient`` for asyncio; their methods are the same. Every error is an ``Error`` with a code.
"""

from ._async import AsyncClient, AsyncStream
from ._client import Client, Stream
from ._errors import (
    ConnectionFailed,
    DeadlineExceeded,
    Error,
    Forbidden,
    InvalidRequest,
    ModelFailed,
    NotFound,
    StreamBroken,
    Unavailable,
)
from ._retry import Retry
from ._wire import FeedbackResult, Prediction

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "Client",
    "ConnectionFailed",
    "DeadlineExceeded",
    "Error",
    "FeedbackResult",
    "Forbidden",
    "InvalidRequest",
    "ModelFailed",
    "NotFound",
    "Prediction",
    "Retry",
    "Stream",
    "StreamBroken",
    "Unavailable",
]
