"""The interface between the protocol and the model's code: values of sections in, values of sections out.

The worker and :func:`xebec.try_predict` both use it, so a model that works by hand works behind the gateway.
"""

from __future__ import annotations

import json
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from ._blocks import Block, Float64s, LaidOut, Statuses, codecs
from ._bytes import ByteStrings, Codec
from ._frames import maker, unframed
from ._protocol import CAN_CALLS, CAN_PARAMETERS, ProtocolError
from ._tensors import BadOutput, Error, Signature, TensorSpec, describe

# The size of an error text: enough for a deep traceback, small compared with any block.
MAX_ERROR_BYTES = 16 * 1024

_NO_STREAM = (
    "predict returned a generator. A model that answers in streams has a predict that is a generator function itself, with yield, "
    "and stream: true in its manifest"
)

_NOT_AWAITED = (
    "predict returned an awaitable, but is no `async def` itself: a lambda or a decorator hides the one that it calls. "
    "Write `async def predict(batch): return await …`"
)

# The gateway's rings have 64 entries, of which it keeps some.
MAX_CONCURRENCY = 62


class Handlers(NamedTuple):
    """What the model's author passed to serve."""

    predict: Callable[..., Any]
    feedback: Optional[Callable[..., Any]] = None
    accuracy: Optional[Callable[[], Any]] = None
    contexts: bool = False
    confidences: bool = False
    text: bool = False
    concurrency: int = 1
    parameters: bool = False
    calls: bool = False
    stream: bool = False
    step: Optional[Callable[..., Any]] = None


class Last(NamedTuple):
    """The last output of a sequence, from step."""

    output: Any


class End:
    def __repr__(self) -> str:
        return "xebec.END"


END = End()  # what step returns for a sequence that has ended without a further output


class Answer(NamedTuple):
    """What predict's result becomes: a block for n queries, and the sections that follow its outputs."""

    block: Block
    laid_out: LaidOut
    confidences: bool = False
    statuses: bool = False


class Model:
    """Handlers bound to a signature: the layout of each kind of block, and the conversion of values to arguments and of
    results to values."""

    def __init__(self, handlers: Handlers, signature: Signature, mode_contexts: bool, numpy: bool = True, mode_more: int = 0) -> None:
        self.handlers, self.signature = handlers, signature
        self._mode_contexts = mode_contexts
        self._frame = maker(handlers.predict, signature.inputs)
        inputs = codecs(signature.inputs, "input", handlers.text, numpy)
        outputs = codecs(signature.outputs, "output", False, numpy)
        if mode_contexts:
            inputs.append(ByteStrings(TensorSpec("contexts", "bytes", ()), "the contexts", handlers.text))
        labels = ByteStrings(TensorSpec("labels", "bytes", ()), "the labels")
        extras: list[Codec] = []
        if mode_more & CAN_PARAMETERS:
            extras.append(ByteStrings(TensorSpec("parameters", "bytes", ()), "the parameters"))
        if mode_more & CAN_CALLS:
            extras.append(ByteStrings(TensorSpec("calls", "bytes", ()), "the calls"))
        self._mode_more = mode_more
        self.predict_block = Block([*inputs, *extras])
        self.feedback_block = Block([*inputs, labels])
        confidences: list[Codec] = [Float64s("the confidences")]
        statuses: list[Codec] = [Statuses(), ByteStrings(TensorSpec("texts", "bytes", ()), "the texts of errors")]
        self.output_block = Block(outputs)
        self.confident_block = Block(outputs + confidences)
        self._refusing_blocks = (Block(outputs + statuses), Block(outputs + confidences + statuses))
        self.accuracy_block = Block([Float64s("the accuracy")])
        self._single_in = signature.inputs[0].name if len(signature.inputs) == 1 else None
        self._out_names = [spec.name for spec in signature.outputs]

    def arguments(self, values: list[Any], n: int) -> tuple[Any, ...]:
        """The arguments of predict: the batch, and the contexts if the model wants them."""
        inputs = len(self.signature.inputs)
        if self._frame is not None:
            batch = self._frame(values[:inputs])
        elif self._single_in is not None:
            batch = values[0]
        else:
            batch = dict(zip((s.name for s in self.signature.inputs), values))
        if not self.handlers.contexts:
            return (batch,)
        return (batch, values[inputs] if self._mode_contexts else ["" if self.handlers.text else b""] * n)

    def predict_arguments(self, values: list[Any], n: int) -> tuple[Any, ...]:
        """The arguments of predict: those of arguments, then parameters and calls if the model wants them."""
        h = self.handlers
        if not h.parameters and not h.calls:
            return self.arguments(values, n)
        at, more = len(self.signature.inputs) + self._mode_contexts, []
        if self._mode_more & CAN_PARAMETERS:
            more.append([read_parameters(text) for text in values[at]])
            at += 1
        elif h.parameters:
            more.append([{} for _ in range(n)])
        if h.calls:
            more.append([read_call(raw) for raw in values[at]] if self._mode_more & CAN_CALLS else [Call()] * n)
        return (*self.arguments(values, n), *more)

    def output_of_stream(self, yielded: Any) -> tuple[Block, list[Any]]:
        """The block and the values of one output of a stream: what predict would return for one query, where a single
        value may leave out the batch's axis. Raises BadOutput."""
        outputs, sure = yielded, None
        if self.handlers.confidences:
            if not isinstance(yielded, tuple) or len(yielded) != 2:
                raise BadOutput(f"predict yielded {describe(yielded)}; expected a pair (output, confidence), because confidences=True")
            outputs, sure = yielded
        values = [bare(spec, value) for spec, value in zip(self.signature.outputs, self._outputs(outputs))]
        if sure is None:
            return self.output_block, values
        return self.confident_block, [*values, sure if hasattr(sure, "__len__") else [sure]]

    def feedback_arguments(self, values: list[Any], n: int) -> tuple[Any, ...]:
        """The arguments of feedback: the batch, the labels as Python values, and the contexts if the model wants
        them."""
        batch, *contexts = self.arguments(values, n)
        return (batch, [json.loads(label) for label in values[-1]], *contexts)

    def answer(self, returned: Any, n: int) -> Answer:
        """Lays out predict's result for n queries. An :class:`Error` in a query's place becomes its status. Raises
        BadOutput."""
        try:
            return self._answer(returned, n)
        except BadOutput as e:
            if hasattr(returned, "__next__") or hasattr(returned, "__anext__"):
                raise BadOutput(f"{e}. {_NO_STREAM}") from None
            if hasattr(returned, "__await__"):
                getattr(returned, "close", int)()  # otherwise Python warns that it was never awaited
                raise BadOutput(f"{e}. {_NOT_AWAITED}") from None
            raise

    def _answer(self, returned: Any, n: int) -> Answer:
        block, values = self.results(returned)
        confident = block is self.confident_block
        try:
            return Answer(block, block.prepare(values, n), confident)
        except BadOutput:  # an Error is no output, so only a result that does not fit is searched for one
            errors = _errors_in(values, n)
            if not errors:
                raise
        for s, value in enumerate(values):
            items = list(value)
            for i in errors:
                items[i] = self.signature.outputs[s].placeholder() if s < len(self.signature.outputs) else None
            values[s] = items
        return self._refusal(values, errors, n, confident)

    def refuse(self, error: Error, n: int) -> Answer:
        """The answer of a batch of which every query ended in this error."""
        values = [[spec.placeholder()] * n for spec in self.signature.outputs]
        return self._refusal(values, dict.fromkeys(range(n), error), n, False)

    def _refusal(self, values: list[Any], errors: dict[int, Error], n: int, confident: bool) -> Answer:
        codes = [errors[i].status if i in errors else 0 for i in range(n)]
        texts = [cut(str(errors[i]), MAX_ERROR_BYTES) if i in errors else b"" for i in range(n)]
        block = self._refusing_blocks[confident]
        return Answer(block, block.prepare([*values, codes, texts], n), confident, True)

    def results(self, returned: Any) -> tuple[Block, list[Any]]:
        """Returns the block for predict's result, and one value per section of it. Raises BadOutput."""
        if not self.handlers.confidences:
            return self.output_block, self._outputs(returned)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise BadOutput(f"predict returned {describe(returned)}; expected a pair (outputs, confidences), because confidences=True")
        outputs, confidences = returned
        if confidences is None:
            return self.output_block, self._outputs(outputs)
        return self.confident_block, [*self._outputs(outputs), confidences]

    def _outputs(self, returned: Any) -> list[Any]:
        names = self._out_names
        if self._frame is not None:
            returned = unframed(returned)
        if isinstance(returned, dict):
            if returned.keys() != set(names):
                raise BadOutput(f"predict returned {describe(returned)}; the declared outputs are {names}")
            return [returned[name] for name in names]
        if len(names) == 1:
            return [returned]
        if isinstance(returned, list) and returned:
            rows = [self._row(i, item) for i, item in enumerate(returned)]
            return [list(column) for column in zip(*rows)]
        if not isinstance(returned, tuple) or len(returned) != len(names):
            raise BadOutput(
                f"predict returned {describe(returned)}; expected a dict with the keys {names}, or a tuple in this order, "
                "or a list with one of both for each query"
            )
        return list(returned)

    def _row(self, i: int, item: Any) -> Sequence[Any]:
        """The outputs of one query in the declared order, from item i of a list that predict returned. An Error stands in
        each column."""
        names = self._out_names
        if isinstance(item, dict) and item.keys() == set(names):
            return [item[name] for name in names]
        if isinstance(item, tuple) and len(item) == len(names):
            return item
        if isinstance(item, Error):
            return [item] * len(names)
        raise BadOutput(
            f"predict returned a list whose item {i} is {describe(item)}; "
            f"expected a dict with the keys {names}, or a tuple in this order"
        )


def bare(spec: Any, value: Any) -> Any:
    """One output as the batch of one that it is: a value without the batch's axis gets it, where there is no doubt."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return value.reshape((1, *shape)) if len(shape) == len(spec.shape) else value
    return value if spec.shape or isinstance(value, (list, tuple, dict)) else [value]


def _errors_in(values: list[Any], n: int) -> dict[int, Error]:
    """The errors among the items of the columns, by query. Columns of another kind than lists and tuples have none."""
    found: dict[int, Error] = {}
    for value in values:
        if not isinstance(value, (list, tuple)) or len(value) != n:
            continue
        for i, item in enumerate(value):
            if isinstance(item, Error):
                found.setdefault(i, item)
    return found


# Is called with each exception of the model before it is answered: `xebec dev` shows it to the author.
watcher: Optional[Callable[[BaseException], None]] = None


def watched(e: BaseException) -> BaseException:
    if watcher is not None:
        watcher(e)
    return e


def error_text(e: BaseException) -> str:
    """An exception for operators: a summary, then the traceback. The summary comes first because long texts are cut at
    the end."""
    watched(e)
    summary = "".join(traceback.format_exception_only(type(e), e))
    # The first frame is the binding's own call of the model.
    frames = e.__traceback__.tb_next if e.__traceback__ else None
    return summary + ("Traceback (most recent call last):\n" + "".join(traceback.format_tb(frames)) if frames else "")


def cut(text: str, size: int) -> bytes:
    """text as UTF-8 of at most size bytes, cut at a character boundary."""
    raw = text.encode("utf-8", "backslashreplace")
    size = min(size, MAX_ERROR_BYTES)
    if len(raw) <= size:
        return raw
    return raw[:size].decode("utf-8", "ignore").encode("utf-8")


class Call(NamedTuple):
    """What is known of the call that a query came with. The deadline is a reading of time.monotonic(), or None."""

    deadline: Optional[float] = None
    request_id: str = ""
    traceparent: str = ""
    tracestate: str = ""


def read_parameters(text: bytes) -> Any:
    """Decodes a query's parameters. Raises Error for what Python cannot read, which refuses that query."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Error("the parameters are not JSON that this model can read") from None


def read_call(raw: bytes) -> Call:
    """Decodes an item of the section of calls."""
    try:
        (micros,), at, texts = struct.unpack_from("<Q", raw), 8, []
        for _ in range(3):
            (size,) = struct.unpack_from("<H", raw, at)
            if size > len(raw) - at - 2:
                raise ProtocolError("the calls: a string is longer than its item")
            texts.append(raw[at + 2 : at + 2 + size].decode("utf-8", "replace"))
            at += 2 + size
    except struct.error:
        raise ProtocolError(f"the calls: an item of {len(raw)} bytes ends too early") from None
    return Call(time.monotonic() + micros / 1e6 if micros else None, *texts)
