"""What a model's author calls: serve, and try_predict for a try-out without a gateway."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Optional, Union

from ._blocks import Block, codecs
from ._bytes import ByteStrings
from ._link import ring_module
from ._model import Handlers, Model, check_handlers
from ._tensors import BadOutput, Signature, TensorSpec, describe, parse_spec
from ._worker import Launch, Worker

EXIT_NOT_LAUNCHED = 2

_VARIABLES = ("XEBEC_SOCKET", "XEBEC_TOKEN", "XEBEC_MODEL", "XEBEC_VERSION")


def serve(
    predict: Callable[..., Any],
    *,
    feedback: Optional[Callable[..., Any]] = None,
    accuracy: Optional[Callable[[], float]] = None,
    contexts: bool = False,
    confidences: bool = False,
    text: bool = False,
) -> NoReturn:
    """Serves a model behind the gateway that started this process. Call it last, from the main thread: it does not return.

    predict(batch) gets n queries and returns n outputs. The batch is, as the model's signature declares the input:

    * numeric, one shape: an ndarray (n, *shape), a read-only view of shared memory, valid until predict returns;
    * numeric, dimensions that differ: a list of n such arrays;
    * bytes: a list of n bytes (str with text=True, UTF-8); lists in lists for a rank above 0;
    * several inputs: a dict from name to one of these.

    Outputs are an array or a list of length n; for several outputs a dict from name to one of these, or a tuple in the
    declared order. They are cast to the declared types by numpy's same_kind rule. Without numpy, numeric tensors are
    memoryviews on the way in and lists or buffers on the way out.

    contexts: predict gets (batch, contexts), one bytes (str with text) for each query.
    confidences: predict returns (outputs, confidences), n floats; None where the model has nothing to say.
    feedback(batch, labels[, contexts]) gets what callers reported later; labels are decoded JSON.
    accuracy() returns a float: what the model thinks of itself.

    An exception in any of them fails its batch and nothing else. The process ends with 0 after SIGTERM when all is answered, with
    1 when the gateway is gone or refuses, with 2 when no gateway started it.
    """
    handlers = Handlers(predict, feedback, accuracy, contexts, confidences, text)
    check_handlers(handlers)
    missing = [name for name in _VARIABLES if not os.environ.get(name)]
    if missing:
        print(
            f"xebec: this model is started by the gateway, which sets {', '.join(missing)}.\n"
            "Deploy its directory with `xebec deploy DIR`.\n"
            "To try predict by hand, call your function, or xebec.try_predict(predict, batch, inputs=…, outputs=…),\n"
            "which also checks what it returns.",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_NOT_LAUNCHED)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("xebec.serve: call it from the main thread; only there can Python take the gateway's SIGTERM")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # what a model prints is read as a log, line by line
    Worker(handlers, Launch(*(os.environ[name] for name in _VARIABLES)), ring_module()).run()
    raise SystemExit(0)


def try_predict(
    predict: Callable[..., Any],
    batch: Any,
    *,
    inputs: Union[str, dict[str, str]],
    outputs: Union[str, dict[str, str]],
    contexts: Optional[Sequence[Union[bytes, str]]] = None,
    confidences: bool = False,
    text: bool = False,
) -> Any:
    """Calls predict as the gateway would, without one: the batch goes through a block in memory, so predict sees what it
    will see when served (read-only arrays of the declared type), and what it returns is judged as it will be.

    inputs and outputs are declared as in xebec.yaml, ``"float32[64]"`` or a dict from name to that. The batch is a sequence
    of n queries, or a dict of such for several inputs. Returns the outputs as callers get them, and with confidences a pair.
    Raises BadOutput when the outputs do not fit, and whatever predict raises.
    """
    signature = Signature(_specs(inputs, "input"), _specs(outputs, "output"))
    handlers = Handlers(predict, contexts=contexts is not None, confidences=confidences, text=text)
    check_handlers(handlers)
    model = Model(handlers, signature, contexts is not None)
    names = [spec.name for spec in signature.inputs]
    if not names or (batch.keys() != set(names) if isinstance(batch, dict) else len(names) > 1):
        raise TypeError(f"xebec.try_predict: the batch is {describe(batch)}; expected a dict with the keys {names}")
    columns = [batch[name] for name in names] if isinstance(batch, dict) else [batch]
    n = len(columns[0])
    writers = codecs(signature.inputs, "input")
    if contexts is not None:
        columns.append(contexts)
        writers.append(ByteStrings(TensorSpec("contexts", "bytes", ()), "the contexts"))
    try:
        block = _rendered(Block(writers), columns, n)
    except BadOutput as e:
        raise TypeError(str(e).replace("predict returned", "the batch has")) from None
    returned = predict(*model.arguments(model.predict_block.read(block, 0, len(block), n), n))
    layout, values = model.results(returned)
    block = _rendered(layout, values, n)
    results = layout.read(block, 0, len(block), n)
    if layout is model.confident_block:
        return _outputs(signature, results[:-1]), list(results[-1])
    return (_outputs(signature, results), None) if confidences else _outputs(signature, results)


def _specs(declared: Union[str, dict[str, str]], name: str) -> tuple[TensorSpec, ...]:
    if isinstance(declared, str):
        declared = {name: declared}
    return tuple(parse_spec(name, text) for name, text in declared.items())


def _rendered(layout: Block, values: list[Any], n: int) -> bytes:
    laid_out = layout.prepare(values, n)
    block = bytearray(laid_out[0])
    layout.write(block, 0, laid_out, n)
    return bytes(block)


def _outputs(signature: Signature, values: list[Any]) -> Any:
    return values[0] if len(signature.outputs) == 1 else dict(zip((s.name for s in signature.outputs), values))
