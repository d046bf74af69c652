"""The models of the conformance suite, as workertest.Echo, Markers, Stream and Wrong describe them, for the Python binding."""

import asyncio
import json
import os
import time

import xebec

CONTEXTS = os.environ.get("XEBEC_CONFORMANCE_CONTEXTS") == "1"
CONFIDENCES = os.environ.get("XEBEC_CONFORMANCE_CONFIDENCES") == "1"
PARAMETERS = os.environ.get("XEBEC_CONFORMANCE_PARAMETERS") == "1"
CALLS = os.environ.get("XEBEC_CONFORMANCE_CALLS") == "1"
FEEDBACK = os.environ.get("XEBEC_CONFORMANCE_FEEDBACK") == "1"

told = b""
labels_seen = [0, 0]  # right, all


def echo(batch):
    if isinstance(batch, dict):
        return tuple(batch.values())
    return batch


def more(arguments):
    """The arguments of predict after the batch, by name."""
    wanted = [name for name, on in (("context", CONTEXTS), ("parameters", PARAMETERS), ("call", CALLS)) if on]
    return dict(zip(wanted, arguments))


def show(what, of):
    """What the query came with, as an output."""
    if what == b"context":
        return of
    if what == b"parameters":
        return json.dumps(of, separators=(",", ":"), ensure_ascii=False).encode()
    when = "none" if of.deadline is None else "soon" if of.deadline > time.monotonic() else "past"
    return "|".join((of.request_id, of.traceparent, of.tracestate, when)).encode()


def ask(i, callee, text):
    """What a function answers to a text, for query i."""
    try:
        return xebec.call(callee.decode(), text, query=i)
    except xebec.CallError as e:
        return f"{e.code}|{e}".encode()


def markers(batch, *arguments):
    said = more(arguments)
    out = []
    for i, data in enumerate(batch):
        if data.startswith(b"error"):
            raise ValueError("the marker error")
        if data.startswith(b"panic"):
            raise SystemExit("the marker panic")
        if data.startswith(b"bad"):
            continue
        if data.startswith(b"die"):
            os._exit(3)
        if data.startswith(b"big:"):
            data = b"x" * int(data[4:])
        elif data.startswith(b"wait:"):
            with open(data[5:], "rb") as gate:
                gate.read()
        elif data in (b"context", b"parameters", b"call") and data.decode() in said:
            data = show(data, said[data.decode()][i])
        elif data.startswith(b"ask:"):
            data = ask(i, *data[4:].split(b":", 1))
        elif data == b"told":
            data = told
        elif data.startswith(b"refuse:"):
            data = xebec.Error(data[7:].decode())
        elif data.startswith(b"fail:"):
            data = xebec.Error(data[5:].decode(), code="model_error")
        elif data.startswith(b"raise:"):
            raise xebec.Error(data[6:].decode())
        out.append(data)
    return out


def stream(batch, *arguments):
    said = more(arguments)
    ends = []
    try:
        for step in batch[0].split():
            word, _, rest = step.partition(b":")
            if word == b"out":
                yield rest
            elif word == b"count":
                for i in range(int(rest)):
                    yield b"%d" % i
            elif word == b"big":
                yield b"x" * int(rest)
            elif word == b"forever":
                while True:
                    yield b"x"
            elif word == b"wait":
                with open(rest, "rb") as gate:
                    gate.read()
            elif word == b"ends":
                ends.append(rest)
            elif word in (b"context", b"parameters", b"call"):
                yield show(word, said[word.decode()][0])
            elif word == b"error":
                raise ValueError("the marker error")
            elif word == b"panic":
                raise SystemExit("the marker panic")
            elif word == b"bad":
                yield 5
            elif word == b"die":
                os._exit(3)
            elif word == b"refuse":
                raise xebec.Error(rest.decode())
            elif word == b"fail":
                raise xebec.Error(rest.decode(), code="model_error")
    finally:
        for path in ends:
            open(path, "wb").close()


async def stream_on_a_loop(batch, *arguments):
    for output in stream(batch, *arguments):
        yield output
        await asyncio.sleep(0)


def feedback(batch, labels, contexts=None):
    global told
    said = []
    for i, label in enumerate(labels):
        if label == "panic":
            raise SystemExit("the label panic")
        if isinstance(label, str) and label.startswith("wait:"):
            with open(label[5:], "rb") as gate:
                gate.read()
        labels_seen[0] += label is True
        labels_seen[1] += 1
        text = json.dumps(label, separators=(",", ":"), ensure_ascii=False).encode()
        said.append(b"/".join((bytes(batch[i]), contexts[i] if contexts else b"", text)))
    told = b";".join(said)


def accuracy():
    if not labels_seen[1]:
        raise ValueError("no feedback yet")
    return labels_seen[0] / labels_seen[1]


def wrong(batch):
    import numpy as np

    n, code = len(batch), int(batch[0])
    if code == 1:
        return np.zeros((n - 1, 4), np.float32)
    if code == 2:
        return np.zeros((n, 3), np.float32)
    if code == 3:
        return [["no"] * 4] * n
    return np.zeros((n, 4), np.float32)


predict = {"echo": echo, "markers": markers, "stream": stream, "wrong": wrong}[os.environ["XEBEC_CONFORMANCE_MODEL"]]


def sure(batch, *arguments):
    outputs = predict(batch, *arguments)
    return outputs, [0.5] * len(outputs)


def sure_stream(batch, *arguments):
    for output in stream(batch, *arguments):
        yield output, 0.5


async def on_a_loop(*arguments):
    return await asyncio.get_running_loop().run_in_executor(None, predict, *arguments)


def step(states):
    outputs = []
    for state in states:
        try:
            outputs.append(next(state, xebec.END))
        except BaseException as e:
            outputs.append(e)
    return outputs


STEPS = os.environ.get("XEBEC_CONFORMANCE_STEPS") == "1"
CONCURRENCY = os.environ.get("XEBEC_CONFORMANCE_CONCURRENCY", "")
if predict is stream:
    served = stream_on_a_loop if "async" in CONCURRENCY and not STEPS else sure_stream if CONFIDENCES else stream
else:
    served = on_a_loop if "async" in CONCURRENCY else sure if CONFIDENCES else predict

xebec.serve(
    served,
    concurrency=int(CONCURRENCY.replace("async", "")) if CONCURRENCY else None,
    parameters=PARAMETERS,
    calls=CALLS,
    contexts=CONTEXTS,
    confidences=CONFIDENCES,
    feedback=feedback if FEEDBACK else None,
    accuracy=accuracy if FEEDBACK else None,
    step=step if STEPS else None,
)
