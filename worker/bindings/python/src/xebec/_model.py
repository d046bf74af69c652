"""The interface between the protocol and the model's code: values of sections in, values of sections out.

The worker and :func:`xebec.try_predict` both use it, so a model that works by hand works behind the gateway.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from ._blocks import Block, Codec, Float64s, LaidOut, Statuses, codecs
from ._bytes import ByteStrings
from ._tensors import ERROR_CODES, BadOutput, Error, Signature, TensorSpec, describe

# The size of an error text: enough for a deep traceback, small compared with any block.
MAX_ERROR_BYTES = 16 * 1024

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


class Answer(NamedTuple):
    """What predict's result becomes: a block for n queries, and the sections that follow its outputs."""

    block: Block
    laid_out: LaidOut
    confidences: bool = False
    statuses: bool = False


class Model:
    """Handlers bound to a signature: the layout of each kind of block, and the conversion of values to arguments and of
    results to values."""

    def __init__(self, handlers: Handlers, signature: Signature, mode_contexts: bool, numpy: bool = True) -> None:
        self.handlers, self.signature = handlers, signature
        self._mode_contexts = mode_contexts
        inputs = codecs(signature.inputs, "input", handlers.text, numpy)
        outputs = codecs(signature.outputs, "output", False, numpy)
        if mode_contexts:
            inputs.append(ByteStrings(TensorSpec("contexts", "bytes", ()), "the contexts", handlers.text))
        labels = ByteStrings(TensorSpec("labels", "bytes", ()), "the labels")
        self.predict_block = Block(inputs)
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
        batch = values[0] if self._single_in is not None else dict(zip((s.name for s in self.signature.inputs), values))
        if not self.handlers.contexts:
            return (batch,)
        return (batch, values[inputs] if self._mode_contexts else ["" if self.handlers.text else b""] * n)

    def feedback_arguments(self, values: list[Any], n: int) -> tuple[Any, ...]:
        """The arguments of feedback: the batch, the labels as Python values, and the contexts if the model wants
        them."""
        batch, *contexts = self.arguments(values, n)
        return (batch, [json.loads(label) for label in values[-1]], *contexts)

    def answer(self, returned: Any, n: int) -> Answer:
        """Lays out predict's result for n queries. An :class:`Error` in a query's place becomes its status. Raises
        BadOutput."""
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
        codes = [ERROR_CODES[errors[i].code] if i in errors else 0 for i in range(n)]
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
        if isinstance(returned, dict):
            if returned.keys() != set(names):
                raise BadOutput(f"predict returned {describe(returned)}; the declared outputs are {names}")
            return [returned[name] for name in names]
        if len(names) == 1:
            return [returned]
        if isinstance(returned, list) and returned and all(isinstance(item, dict) for item in returned):
            raise BadOutput(
                f"predict returned a list of {len(returned)} dicts; "
                f"expected one dict with the keys {names}, whose values hold all queries'"
            )
        if not isinstance(returned, tuple) or len(returned) != len(names):
            raise BadOutput(
                f"predict returned {describe(returned)}; expected a dict with the keys {names}, or a tuple in this order"
            )
        return list(returned)


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


def error_text(e: BaseException) -> str:
    """An exception for operators: a summary, then the traceback. The summary comes first because long texts are cut at
    the end."""
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


def is_async(predict: Any) -> bool:
    """Whether predict is an async function, or an object whose call is one."""
    while hasattr(predict, "func"):  # functools.partial
        predict = predict.func
    code = getattr(predict, "__code__", None) or getattr(getattr(type(predict), "__call__", None), "__code__", None)
    return bool(code and code.co_flags & 0x80)  # inspect.CO_COROUTINE, without the import


def check_handlers(h: Handlers) -> None:
    """Raises TypeError for handlers that serve cannot use, before it connects."""
    wanted: Sequence[tuple[str, Any, bool]] = (
        ("predict", h.predict, True),
        ("feedback", h.feedback, False),
        ("accuracy", h.accuracy, False),
    )
    for name, handler, required in wanted:
        if not callable(handler) and (required or handler is not None):
            raise TypeError(f"xebec.serve: {name} is {describe(handler)}; expected a function")
    if not isinstance(h.concurrency, int) or not 1 <= h.concurrency <= MAX_CONCURRENCY:
        raise TypeError(f"xebec.serve: the concurrency is {h.concurrency!r}; expected a number from 1 to {MAX_CONCURRENCY}")
