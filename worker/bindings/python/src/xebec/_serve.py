"""The public API: serve, and try_predict to try a model without a gateway."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Optional, Union, overload

from ._blocks import Block, LaidOut, codecs
from ._bytes import ByteStrings
from ._check import check_handlers, is_async, is_generator
from ._frames import unframed
from ._link import ring_module
from ._model import MAX_CONCURRENCY, Call, Handlers, Model
from ._protocol import CAN_PARAMETERS
from ._tensors import ERROR_CODES, BadOutput, Error, Signature, TensorSpec, describe, parse_spec
from ._worker import Launch, Worker

if TYPE_CHECKING:
    from ._accepted import (
        Accuracy,
        Feedback,
        FeedbackC,
        No,
        Predict,
        PredictC,
        PredictCP,
        PredictCPQ,
        PredictCQ,
        PredictP,
        PredictPQ,
        PredictQ,
        Results,
        Step,
        SureResults,
        Yes,
    )  # fmt: skip

EXIT_NOT_LAUNCHED = 2

# What serve registers, with the file that called it, instead of serving. It is None unless xebec.testing is imported.
registered: Optional[list[tuple[Optional[str], Handlers]]] = None

_CODES = {number: code for code, number in ERROR_CODES.items()}
_VARIABLES = ("XEBEC_SOCKET", "XEBEC_TOKEN", "XEBEC_MODEL", "XEBEC_VERSION")


# One overload for each set of arguments that predict takes, with and without confidences; the last is for sequences.
@overload
def serve(
    predict: Predict[Results], *,
    contexts: No = False, parameters: No = False, calls: No = False, confidences: No = False,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: Predict[SureResults], *,
    contexts: No = False, parameters: No = False, calls: No = False, confidences: Yes,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictQ[Results], *,
    contexts: No = False, parameters: No = False, calls: Yes, confidences: No = False,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictQ[SureResults], *,
    contexts: No = False, parameters: No = False, calls: Yes, confidences: Yes,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictP[Results], *,
    contexts: No = False, parameters: Yes, calls: No = False, confidences: No = False,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictP[SureResults], *,
    contexts: No = False, parameters: Yes, calls: No = False, confidences: Yes,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictPQ[Results], *,
    contexts: No = False, parameters: Yes, calls: Yes, confidences: No = False,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictPQ[SureResults], *,
    contexts: No = False, parameters: Yes, calls: Yes, confidences: Yes,
    feedback: Feedback = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictC[Results], *,
    contexts: Yes, parameters: No = False, calls: No = False, confidences: No = False,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictC[SureResults], *,
    contexts: Yes, parameters: No = False, calls: No = False, confidences: Yes,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictCQ[Results], *,
    contexts: Yes, parameters: No = False, calls: Yes, confidences: No = False,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictCQ[SureResults], *,
    contexts: Yes, parameters: No = False, calls: Yes, confidences: Yes,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictCP[Results], *,
    contexts: Yes, parameters: Yes, calls: No = False, confidences: No = False,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictCP[SureResults], *,
    contexts: Yes, parameters: Yes, calls: No = False, confidences: Yes,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictCPQ[Results], *,
    contexts: Yes, parameters: Yes, calls: Yes, confidences: No = False,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: PredictCPQ[SureResults], *,
    contexts: Yes, parameters: Yes, calls: Yes, confidences: Yes,
    feedback: FeedbackC = None, accuracy: Accuracy = None, text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
@overload
def serve(
    predict: Callable[..., object], *, step: Step,
    contexts: bool = False, parameters: bool = False, calls: bool = False, confidences: bool = False,
    text: bool = False, concurrency: Optional[int] = None,
) -> NoReturn: ...  # fmt: skip
def serve(
    predict: Callable[..., Any],
    *,
    feedback: Optional[Callable[..., Any]] = None,
    accuracy: Optional[Callable[[], Any]] = None,
    contexts: bool = False,
    confidences: bool = False,
    text: bool = False,
    concurrency: Optional[int] = None,
    parameters: bool = False,
    calls: bool = False,
    step: Optional[Callable[..., Any]] = None,
) -> NoReturn:
    """Serves a model behind the gateway that started this process. Call it last, from the main thread: it does not
    return.

    predict(batch) receives n queries and returns n outputs. The batch depends on the declared input:

    * numeric with a fixed shape: an ndarray (n, *shape), a read-only view of shared memory, valid until predict
      returns;
    * numeric with varying dimensions: a list of n such arrays;
    * bytes: a list of n bytes (str with text=True, UTF-8); nested lists for a rank above 0;
    * several inputs: a dict from name to one of these.

    Outputs are an array or a list of length n; for several outputs a dict from name to one of these, or a tuple in the
    declared order. They are cast to the declared types by numpy's same_kind rule. Without numpy, numeric inputs are
    memoryviews, and numeric outputs are lists or buffers.

    contexts: predict receives (batch, contexts), with one bytes (str with text) per query.
    confidences: predict returns (outputs, confidences), with n floats; None means no confidence.
    feedback(batch, labels[, contexts]) receives what callers reported later; labels are decoded JSON.
    accuracy() returns a float: how accurate the model has been.

    concurrency: how many batches predict evaluates at once, up to 62. A plain function is called on as many threads; an
    ``async def`` on one event loop. The default is 1, and 16 for ``async def``.

    parameters: predict also receives a list with one dict per query: the parameters that its caller has sent.
    calls: predict also receives a list with one :class:`xebec.Call` per query: deadline, request id and trace. The order
    is (batch, contexts, parameters, calls), of which predict gets those it has asked for.

    A model with ``stream: true`` in its manifest answers in streams. predict is then a generator function, plain or
    async: it is called for each query alone, with a batch of one whose arrays are its own, and yields one output after
    the other. Each is what predict would return for that query; a single value may leave out the batch's axis. A stream
    has a thread of its own, or a task for ``async def``; up to ``concurrency`` (16) are open. When the rest is
    not wanted, the generator is closed.

    step: predict(batch) of one query returns the state of a new sequence. step(states) is called again and again with
    the states of all running sequences, up to ``concurrency`` (62), which join and leave between two calls. It returns
    for each of them an output, None (no output this time), :class:`xebec.Last` with the last output, xebec.END, or an
    :class:`xebec.Error`.

    predict may put an :class:`xebec.Error` in the place of a query's output, or raise it, to refuse that query alone.

    Any other exception in any of them fails its batch and nothing else. The process exits with 0 after SIGTERM once all
    batches are answered, with 1 if the gateway is gone or refuses the worker, and with 2 if no gateway started it.
    """
    stream = step is not None or is_generator(predict)
    if concurrency is None:
        concurrency = MAX_CONCURRENCY if step else 16 if stream or is_async(predict) else 1
    handlers = Handlers(predict, feedback, accuracy, contexts, confidences, text, concurrency, parameters, calls, stream, step)
    check_handlers(handlers)
    if registered is not None and not os.environ.get("XEBEC_TOKEN"):
        registered.append((_calling_file(), handlers))
        return  # type: ignore[misc]
    missing = [name for name in _VARIABLES if not os.environ.get(name)]
    if missing:
        print(
            f"xebec: this model is started by the gateway, which sets {', '.join(missing)}.\n"
            "Deploy its directory with `xebec deploy DIR`.\n"
            "To try it by hand, use `xebec try DIR`; to write it, `xebec dev DIR`; to test it with pytest, xebec.testing.",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_NOT_LAUNCHED)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("xebec.serve: call it from the main thread; Python handles the gateway's SIGTERM only there")
    if hasattr(sys.stdout, "reconfigure"):
        # The gateway reads the model's prints as log lines. Until now they were written piece by piece (PYTHONUNBUFFERED).
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    busy = os.environ.get("XEBEC_BUSY_POLL") or "0"
    if not busy.isdecimal():
        raise ValueError(f"XEBEC_BUSY_POLL={busy!r}: expected microseconds, as the gateway sets it")
    socket, token, model, version = (os.environ[name] for name in _VARIABLES)
    Worker(handlers, Launch(socket, token, model, version, int(busy)), ring_module()).run()
    raise SystemExit(0)


def _calling_file() -> Optional[str]:
    """The file that has called serve, of this package or through a module of it."""
    frame: Any = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    file: Optional[str] = frame.f_globals.get("__file__")
    return file


def try_predict(
    predict: Callable[..., Union[Results, SureResults]],
    batch: Any,
    *,
    inputs: Union[str, dict[str, str]],
    outputs: Union[str, dict[str, str]],
    contexts: Optional[Sequence[Union[bytes, str]]] = None,
    confidences: bool = False,
    text: bool = False,
    parameters: Optional[Sequence[dict[str, Any]]] = None,
    calls: Optional[Sequence[Call]] = None,
) -> Any:
    """Calls predict as the gateway would, without a gateway. The batch goes through a block in memory, so predict sees
    what it will see when served (read-only arrays of the declared type), and its outputs are checked in the same
    way. A query that predict refuses has its :class:`xebec.Error` as output.

    inputs and outputs are declared as in xebec.yaml, ``"float32[64]"`` or a dict from name to that. The batch is a
    sequence of n queries, or a dict or a frame of such for several inputs. contexts, parameters and calls, one for each
    query, are for a predict that is served with these options. Returns the outputs as callers receive them; with
    confidences, a pair. A generator is called with one query, and the result is the list of its outputs. Raises BadOutput
    if the outputs do not fit, and whatever predict raises.
    """
    signature = Signature(_specs(inputs, "input"), _specs(outputs, "output"))
    has_contexts, has_parameters, has_calls = contexts is not None, parameters is not None, calls is not None
    handlers = Handlers(predict, None, None, has_contexts, confidences, text, parameters=has_parameters, calls=has_calls)
    check_handlers(handlers, "try_predict")
    model = Model(handlers, signature, has_contexts, mode_more=CAN_PARAMETERS if has_parameters else 0)
    names = [spec.name for spec in signature.inputs]
    if hasattr(batch, "columns"):
        batch = unframed(batch.reset_index(drop=True) if hasattr(batch, "reset_index") else batch)
    if not names or (batch.keys() != set(names) if isinstance(batch, dict) else len(names) > 1):
        raise TypeError(f"xebec.try_predict: the batch is {describe(batch)}; expected a dict with the keys {names}")
    columns = [batch[name] for name in names] if isinstance(batch, dict) else [batch]
    n = len(columns[0])
    for name, given in (("contexts", contexts), ("parameters", parameters), ("calls", calls)):
        if given is not None and len(given) != n:
            raise TypeError(f"xebec.try_predict: {name} has {len(given)} items for {n} queries; expected one for each")
    writers = codecs(signature.inputs, "input")
    if contexts is not None:
        columns.append(contexts)
        writers.append(ByteStrings(TensorSpec("contexts", "bytes", ()), "the contexts"))
    if parameters is not None:
        columns.append([json.dumps(p) for p in parameters])
        writers.append(ByteStrings(TensorSpec("parameters", "bytes", ()), "the parameters"))
    try:
        batch_block = Block(writers)
        block = _render(batch_block, batch_block.prepare(columns, n), n)
    except BadOutput as e:
        raise TypeError(str(e).replace("predict returned", "the batch has")) from None
    arguments = model.predict_arguments(model.predict_block.read(block, 0, len(block), n), n)
    if calls is not None:
        arguments = (*arguments[:-1], list(calls))
    if is_generator(predict):
        return _try_stream(predict, model, arguments, n)
    returned: Any = predict(*arguments)
    if is_async(predict):
        import asyncio

        returned = asyncio.run(returned)
    answer = model.answer(returned, n)
    block = _render(answer.block, answer.laid_out, n)
    results = answer.block.read(block, 0, len(block), n)
    if answer.statuses:
        *results, codes, texts = results
        errors = [Error(text.decode(), _CODES[code]) if code else None for code, text in zip(codes, texts)]
        results = [[error or item for item, error in zip(column, errors)] for column in results]
    if answer.confidences:
        return _outputs(signature, results[:-1]), list(results[-1])
    return (_outputs(signature, results), None) if confidences else _outputs(signature, results)


def _try_stream(predict: Callable[..., Any], model: Model, arguments: tuple[Any, ...], n: int) -> list[Any]:
    """The outputs of a generator for one query."""
    if n != 1:
        raise TypeError(f"xebec.try_predict: the batch has {n} queries; a model that answers in streams gets one at a time")
    yielded = predict(*arguments)
    if hasattr(yielded, "__aiter__"):
        import asyncio

        async def collect() -> list[Any]:
            return [output async for output in yielded]

        yielded = asyncio.run(collect())
    outputs = []
    for output in yielded:
        layout, values = model.output_of_stream(output)
        rendered = _render(layout, layout.prepare(values, 1), 1)
        results = [column[0] for column in layout.read(rendered, 0, len(rendered), 1)]
        confidence = results.pop() if layout is model.confident_block else None
        result = _outputs(model.signature, results)
        outputs.append((result, confidence) if model.handlers.confidences else result)
    return outputs


def _specs(declared: Union[str, dict[str, str]], name: str) -> tuple[TensorSpec, ...]:
    if isinstance(declared, str):
        declared = {name: declared}
    return tuple(parse_spec(name, text) for name, text in declared.items())


def _render(layout: Block, laid_out: LaidOut, n: int) -> bytes:
    block = bytearray(laid_out[0])
    layout.write(block, 0, laid_out, n)
    return bytes(block)


def _outputs(signature: Signature, values: list[Any]) -> Any:
    return values[0] if len(signature.outputs) == 1 else dict(zip((s.name for s in signature.outputs), values))
