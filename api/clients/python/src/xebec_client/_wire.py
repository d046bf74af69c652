"""Requests as bytes, and answers from bytes. Both clients use it; it opens no connection."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _arrays, _frames
from ._errors import BY_CODE, DeadlineExceeded, Error, InvalidRequest, ModelFailed, StreamBroken, Unavailable

JSON = "application/json"
LINES = "application/jsonl"
OCTETS = "application/octet-stream"

# From this size on, the bytes of an array are sent instead of JSON. Below it, the difference is small and JSON is easier to debug.
RAW_BYTES = 1024


@dataclass(frozen=True)
class Prediction:
    """The answer to one query."""

    output: Any
    query_id: int
    default: bool = False  # the output is the function's default
    default_explanation: str = ""
    confidence: float = 1.0
    models: tuple[str, ...] = ()  # versions that contributed, name@version
    late: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class FeedbackResult:
    """What became of one feedback: counted, counted_in_part, pending, duplicate, nothing_to_learn, late, unknown or busy."""

    status: str
    query_id: int | None = None
    cause: str = ""


@dataclass
class Options:
    """What a call may say beside its input."""

    context: str | None = None
    slo_ms: float | None = None
    models: Sequence[str] | None = None
    version: str | None = None
    min_confidence: float | None = None
    parameters: Mapping[str, Any] | None = None
    salt: str | int | None = None
    ttl_ms: float | None = None

    def members(self) -> dict[str, Any]:
        """Those that only a JSON body can say."""
        names = ("models", "version", "min_confidence", "parameters", "salt", "ttl_ms")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass
class Request:
    path: str
    body: bytes | None = None  # None: GET
    headers: dict[str, str] = field(default_factory=dict)
    idempotent: bool = True


def address(url: str | None) -> str:
    """The gateway's address: the argument, or else XEBEC_SERVER, or else this machine. A host and a port are enough."""
    url = url or os.environ.get("XEBEC_SERVER") or "http://127.0.0.1:1337"
    return url.rstrip("/") if "://" in url else "http://" + url.rstrip("/")


def encode(value: Any) -> bytes:
    """value as JSON. NaN is null, which is how gateways read a missing number. Raises ValueError for an infinity, and says where it is."""
    try:
        return _dumps(value)
    except ValueError:
        finite = _finite(value, "", set())
    return _dumps(finite)


def _dumps(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_element).encode()


def _finite(value: Any, at: str, above: set[int]) -> Any:
    """value with null in the place of NaN. at is where it is, above are the ids of what it is in."""
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(
                f"{at or 'the value'} is {value}: JSON has no infinities; send a large number, or an array of at least"
                f" {RAW_BYTES} bytes, which travels as bytes"
            )
        return None if math.isnan(value) else value
    if not isinstance(value, (Mapping, list, tuple)) and (other := _known(value)) is not value:
        value = other
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if id(value) in above:
        raise ValueError(f"{at or 'the value'} contains itself")
    inside = above | {id(value)}
    if isinstance(value, Mapping):
        return {k: _finite(v, f"{at}.{k}".lstrip("."), inside) for k, v in value.items()}
    return [_finite(v, f"{at}[{i}]", inside) for i, v in enumerate(value)]


def _known(value: Any) -> Any:
    """What stands for a value that JSON has no form for; the value itself if there is nothing."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b64": base64.b64encode(value).decode()}
    if _arrays.is_array(value):
        return _arrays.to_json(value)
    if _frames.is_series(value):
        return _frames.row(value)
    return None if _frames.is_missing(value) else value


def _element(value: Any) -> Any:
    if (other := _known(value)) is not value:
        return other
    if _frames.is_frame(value):
        raise TypeError("a DataFrame is a batch, each row a query: predict_batch(function, frame), or predict(function, frame.iloc[0])")
    raise TypeError(
        f"{type(value).__name__} has no form in JSON: expected numbers, strings, bytes, arrays, lists or dicts of these"
    )


def decode(text: bytes | str) -> Any:
    return json.loads(text, object_hook=_object)


def _object(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["b64"]) if len(value) == 1 and isinstance(value.get("b64"), str) else value


def function_path(function: str, action: str = "") -> str:
    if not function or not all(c.isascii() and (c.isalnum() or c == "-") for c in function):
        raise ValueError(f"function {function!r}: expected letters, digits and dashes")
    return f"/{function}{action}"


def predict(
    function: str, value: Any, options: Options, describe: Mapping[str, Any] | None, arrays: bool, streams: bool = False
) -> Request:
    """A request for one prediction. describe is the function's description, or None where no array needs it."""
    r = Request(function_path(function, "/predict"), headers={"Accept": LINES if streams else JSON})
    if options.context is not None:
        r.headers["Xebec-Context"] = options.context
    members = options.members()
    if isinstance(value, (bytes, bytearray, memoryview)) and not members:
        r.body, r.headers["Content-Type"] = bytes(value), OCTETS
    elif describe and _arrays.is_array(value) and value.nbytes >= RAW_BYTES and not members and describe["raw"]["input"]:
        r.body, r.headers["Content-Type"] = _arrays.to_bytes(value, describe["inputs"][0]), OCTETS
    else:
        r.body, r.headers["Content-Type"] = encode({"input": value, **members}), JSON
    if arrays and not streams and describe and describe["raw"]["output"] and _arrays.has_dtype(describe["outputs"][0]["dtype"]):
        r.headers["Accept"] = f"{OCTETS}, {JSON};q=0.5"
    return r


def predict_batch(function: str, inputs: Any, options: Options) -> Request:
    r = Request(function_path(function, "/predict"), headers={"Accept": JSON, "Content-Type": JSON})
    if options.context is not None:
        r.headers["Xebec-Context"] = options.context
    if _frames.is_frame(inputs):
        batch: dict[str, Any] = {"dataframe_split": _frames.split(inputs)}
    else:
        batch = {"input_batch": inputs if _arrays.is_array(inputs) else list(inputs)}
    r.body = encode({**batch, **options.members()})
    return r


def feedback_item(
    of: Any, label: Any, correct: bool | None, loss: float | None, context: str | None, has_label: bool
) -> dict[str, Any]:
    """One feedback. of is a Prediction, a query's number, or {"input": …}."""
    if isinstance(of, Prediction):
        item: dict[str, Any] = {"query_id": of.query_id}
    elif isinstance(of, Mapping) and set(of) == {"input"}:
        item = {"input": of["input"]}
    elif isinstance(of, int):
        item = {"query_id": of}
    else:
        raise TypeError(f"feedback of {type(of).__name__}: expected a Prediction, a query_id, or {{'input': …}}")
    said = {"label": label} if has_label else {}
    said.update({name: value for name, value in (("correct", correct), ("loss", loss)) if value is not None})
    if len(said) != 1:
        raise TypeError("feedback says one thing: label, correct or loss")
    if context is not None:
        item["context"] = context
    return {**item, **said}


def feedback(function: str, body: dict[str, Any]) -> Request:
    items = body.get("feedback_batch", [body])
    # Feedback by query_id counts once, however often it comes; feedback by input counts each time.
    return Request(
        function_path(function, "/feedback"), encode(body), {"Content-Type": JSON}, all("query_id" in item for item in items)
    )


def failure(status: int, headers: Mapping[str, str], body: bytes) -> Error:
    """The error that an answer other than 2xx says."""
    after: float | None = None
    try:
        after = float(headers["retry-after"])
    except (KeyError, ValueError):
        pass
    request_id = headers.get("x-request-id", "")
    try:
        said = json.loads(body)
        code, cause = str(said["code"]), str(said["cause"])
    except (ValueError, KeyError, TypeError):
        # Not the gateway's: that of a proxy before it.
        kind = {502: ModelFailed, 503: Unavailable, 504: DeadlineExceeded}.get(
            status, InvalidRequest if 400 <= status < 500 else Error
        )
        code = {502: "bad_gateway", 503: "unavailable", 504: "deadline_exceeded"}.get(status, f"http_{status}")
        return kind(
            code,
            f"the answer has status {status} and no error of a gateway: {body[:200]!r}",
            status=status,
            request_id=request_id,
            retry_after=after,
        )
    return BY_CODE.get(code, Error)(code, cause, status=status, request_id=said.get("request_id", request_id), retry_after=after)


def _prediction(said: dict[str, Any], outputs: Sequence[Mapping[str, Any]] | None) -> Prediction:
    lists = {name: tuple(said.get(name, ())) for name in ("models", "late", "failed", "dropped")}
    output = said["output"]
    if outputs is not None:
        output = _arrays.from_json(output, outputs)
    return Prediction(output, said["query_id"], said["default"], said.get("default_explanation", ""), said["confidence"], **lists)


def read_prediction(headers: Mapping[str, str], body: bytes, describe: Mapping[str, Any] | None, arrays: bool) -> Prediction:
    if headers.get("content-type", "").startswith(JSON):
        return _prediction(decode(body), describe["outputs"] if arrays and describe else None)
    assert describe is not None  # only with a description are bytes asked for
    lists = {
        n: tuple(v.split(",")) if (v := headers.get("xebec-" + n, "")) else () for n in ("models", "late", "failed", "dropped")
    }
    return Prediction(
        _arrays.from_bytes(body, describe["outputs"][0]),
        int(headers["xebec-query-id"]),
        headers.get("xebec-default") == "true",
        headers.get("xebec-default-explanation", ""),
        float(headers.get("xebec-confidence", "1")),
        **lists,
    )


def read_batch(body: bytes, outputs: Sequence[Mapping[str, Any]] | None) -> list[Prediction | Error]:
    all_: list[Prediction | Error] = []
    for said in decode(body)["batch_predictions"]:
        if "error" in said:
            all_.append(BY_CODE.get(said["code"], Error)(said["code"], said["cause"], query_id=said.get("query_id")))
        else:
            all_.append(_prediction(said, outputs))
    return all_


def read_line(line: str) -> tuple[bool, Any]:
    """Reads a line of a stream: whether it is the last one, and its output. Raises the error that it says."""
    said = decode(line)
    if "error" in said:
        raise BY_CODE.get(said["code"], Error)(said["code"], said["cause"], request_id=said.get("request_id", ""))
    return ("end" in said, None) if "output" not in said else (False, said["output"])


def broken() -> StreamBroken:
    return StreamBroken("stream_broken", "the stream stopped before its end")
