"""The client for threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import httpx

from . import _arrays, _wire
from ._errors import ConnectionFailed, DeadlineExceeded, Error
from ._retry import Budget, Retry
from ._wire import FeedbackResult, Options, Prediction, Request

UNSET: Any = object()
DESCRIBED_SECONDS = 60.0  # how long a function's description is kept


def connection_error(error: httpx.HTTPError) -> Error:
    """What an error of the transport means. not_connected: the request was not sent."""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return ConnectionFailed("not_connected", f"no connection to the gateway: {error}")
    if isinstance(error, httpx.TimeoutException):
        return DeadlineExceeded("deadline_exceeded", "the gateway did not answer within the client's timeout")
    return ConnectionFailed("connection_failed", f"the connection broke off: {error}")


class Described:
    """Descriptions of functions, kept for a while."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def get(self, function: str) -> Mapping[str, Any] | None:
        known = self._known.get(function)
        return known[1] if known and time.monotonic() < known[0] else None

    def put(self, function: str, description: Mapping[str, Any]) -> None:
        self._known[function] = (time.monotonic() + DESCRIBED_SECONDS, description)

    def forget(self, function: str) -> None:
        self._known.pop(function, None)


class Client:
    """Calls functions of one gateway. It may be used by several threads at once, and keeps its connections for later calls.

    url is that of the function port; without it XEBEC_SERVER, or else this machine's port 1337. timeout bounds each call, in
    seconds. verify is as httpx takes it: for a gateway with a certificate of its own, an ``ssl.SSLContext``.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float = 30.0,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        verify: Any = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._timeout = timeout
        self._budget = Budget(retry or Retry())
        self._described = Described()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.Client(
            base_url=_wire.address(url), timeout=timeout, headers=headers, verify=verify, transport=transport, limits=limits
        )
        self._sleep = time.sleep

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def functions(self) -> list[str]:
        """The names of the gateway's functions, at most 1,000."""
        names: list[str] = self._send(Request("/docs/functions")).json()["functions"]
        return names

    def describe(self, function: str) -> Mapping[str, Any]:
        """What a function takes and answers: the answer to GET /{function}."""
        description: Mapping[str, Any] = self._send(Request(_wire.function_path(function))).json()
        self._described.put(function, description)
        return description

    def predict(
        self,
        function: str,
        input: Any,
        *,
        context: str | None = None,
        slo_ms: float | None = None,
        models: Sequence[str] | None = None,
        version: str | None = None,
        min_confidence: float | None = None,
        parameters: Mapping[str, Any] | None = None,
        salt: str | int | None = None,
        ttl_ms: float | None = None,
        arrays: bool | None = None,
    ) -> Prediction:
        """Asks for one prediction.

        input is a number, a string, bytes, an array, or a list or a dict of these. If it has arrays of numpy's, outputs
        are arrays too, unless
        arrays says otherwise; large arrays travel as bytes. slo_ms replaces the function's latency objective, and bounds
        the attempts too.
        """
        options = Options(context, slo_ms, models, version, min_confidence, parameters, salt, ttl_ms)
        arrays = _arrays.has_arrays(input) if arrays is None else arrays
        describe = self._describe(function) if arrays or _arrays.is_array(input) else None
        try:
            answer = self._send(_wire.predict(function, input, options, describe, arrays), slo_ms)
        except Error:
            self._described.forget(function)  # it may have another signature now
            raise
        return _wire.read_prediction(answer.headers, answer.content, describe, arrays)

    @overload
    def predict_batch(
        self,
        function: str,
        inputs: Any,
        *,
        errors: Literal["raise"] = "raise",
        context: str | None = ...,
        slo_ms: float | None = ...,
        parameters: Mapping[str, Any] | None = ...,
        arrays: bool | None = ...,
    ) -> list[Prediction]: ...
    @overload
    def predict_batch(
        self,
        function: str,
        inputs: Any,
        *,
        errors: Literal["return"],
        context: str | None = ...,
        slo_ms: float | None = ...,
        parameters: Mapping[str, Any] | None = ...,
        arrays: bool | None = ...,
    ) -> list[Prediction | Error]: ...
    def predict_batch(
        self,
        function: str,
        inputs: Any,
        *,
        errors: str = "raise",
        context: str | None = None,
        slo_ms: float | None = None,
        parameters: Mapping[str, Any] | None = None,
        arrays: bool | None = None,
    ) -> Any:
        """Asks for one prediction for each input, in one request. inputs may be a DataFrame of pandas': each row is a query,
        and columns have the names of the model's inputs. With errors="return" queries that failed have an Error in the
        list; otherwise the first one is raised."""
        arrays = _arrays.has_arrays(inputs) if arrays is None else arrays
        outputs = self._describe(function)["outputs"] if arrays else None
        answer = self._send(_wire.predict_batch(function, inputs, Options(context, slo_ms, parameters=parameters)), slo_ms)
        return checked(_wire.read_batch(answer.content, outputs), errors)

    def stream(
        self,
        function: str,
        input: Any,
        *,
        context: str | None = None,
        slo_ms: float | None = None,
        models: Sequence[str] | None = None,
        version: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        salt: str | int | None = None,
    ) -> Stream:
        """Asks a model that answers in a stream. Iterate over the result; leaving its ``with`` block early ends the stream."""
        options = Options(context, slo_ms, models, version, parameters=parameters, salt=salt)
        return Stream(self._send(_wire.predict(function, input, options, None, False, streams=True), slo_ms, streams=True))

    def feedback(
        self,
        function: str,
        of: Any,
        *,
        label: Any = UNSET,
        correct: bool | None = None,
        loss: float | None = None,
        context: str | None = None,
    ) -> FeedbackResult:
        """Says how good a prediction was. of is a Prediction, its query_id, or {"input": …}."""
        item = _wire.feedback_item(of, label, correct, loss, context, label is not UNSET)
        return FeedbackResult(**self._send(_wire.feedback(function, item)).json())

    def feedback_batch(self, function: str, items: Sequence[Mapping[str, Any]]) -> list[FeedbackResult]:
        """Sends several feedbacks, each as the HTTP API has it: {"query_id": 42, "label": 7}."""
        answer = self._send(_wire.feedback(function, {"feedback_batch": [dict(item) for item in items]}))
        return [FeedbackResult(**said) for said in answer.json()["feedback_results"]]

    def _describe(self, function: str) -> Mapping[str, Any]:
        return self._described.get(function) or self.describe(function)

    def _send(self, r: Request, slo_ms: float | None = None, streams: bool = False) -> httpx.Response:
        """Sends a request, again if that can help, and returns an answer with status 2xx."""
        if slo_ms is not None and not slo_ms > 0:
            raise ValueError(f"slo_ms={slo_ms}: expected milliseconds above 0")
        end = time.monotonic() + (self._timeout if slo_ms is None else min(self._timeout, slo_ms / 1000))
        remaining, attempt = end - time.monotonic(), 1
        while True:
            try:
                answer = self._http.send(build(self._http, r, remaining, slo_ms is not None), stream=streams)
                if answer.is_success:
                    self._budget.succeeded()
                    return answer
                if streams:
                    answer.read()
                    answer.close()
                error = _wire.failure(answer.status_code, answer.headers, answer.content)
            except httpx.HTTPError as e:
                error = connection_error(e)
            remaining = end - time.monotonic()
            pause = self._budget.pause(error, attempt, remaining, r.idempotent)
            if pause is None:
                raise error
            self._sleep(pause)
            remaining, attempt = remaining - pause, attempt + 1


def build(http: Any, r: Request, remaining: float, objective: bool) -> httpx.Request:
    """A request of httpx. With an objective, what is left of it is that of this attempt."""
    headers = dict(r.headers)
    if objective:
        headers["Xebec-Slo-Ms"] = f"{max(remaining * 1000, 0.001):.3f}"
    request: httpx.Request = http.build_request("GET" if r.body is None else "POST", r.path, content=r.body, headers=headers)
    return request


def checked(all_: list[Prediction | Error], errors: str) -> list[Prediction | Error]:
    if errors not in ("raise", "return"):
        raise ValueError(f"errors={errors!r}: expected 'raise' or 'return'")
    for one in all_:
        if isinstance(one, Error) and errors == "raise":
            raise one
    return all_


class Stream:
    """The outputs of a stream, as they come. A stream that breaks off raises; the end of the iteration is the end of the
    stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer
        self.query_id = 0  # known from the beginning, unless the answer is the function's default
        self.default = False
        if value := answer.headers.get("xebec-query-id"):
            self.query_id = int(value)

    def __iter__(self) -> Iterator[Any]:
        try:
            if not self._answer.headers.get("content-type", "").startswith(_wire.LINES):
                self._answer.read()  # the function's default, or the only output of a function that asks several models
                p = _wire.read_prediction(self._answer.headers, self._answer.content, None, False)
                self.query_id, self.default = p.query_id, p.default
                yield p.output
                return
            for line in self._answer.iter_lines():
                last, output = _wire.read_line(line)
                if last:
                    return
                yield output
            raise _wire.broken()
        except httpx.HTTPError as e:
            raise _wire.broken() from e
        finally:
            self._answer.close()

    def close(self) -> None:
        """Ends the stream."""
        self._answer.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
