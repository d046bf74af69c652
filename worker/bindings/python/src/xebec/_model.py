"""The interface between the protocol and the model's code: values of sections in, values of sections out.

The worker and :func:`xebec.try_predict` both use it, so a model that works by hand works behind the gateway.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from ._blocks import Block, Float64s, codecs
from ._bytes import ByteStrings
from ._tensors import BadOutput, Signature, TensorSpec, describe

# The size of an error text: enough for a deep traceback, small compared with any block.
MAX_ERROR_BYTES = 16 * 1024


class Handlers(NamedTuple):
    """What the model's author passed to serve."""

    predict: Callable[..., Any]
    feedback: Optional[Callable[..., Any]] = None
    accuracy: Optional[Callable[[], Any]] = None
    contexts: bool = False
    confidences: bool = False
    text: bool = False


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
        self.output_block = Block(outputs)
        self.confident_block = Block([*outputs, Float64s("the confidences")])
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
