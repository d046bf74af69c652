"""The models of the conformance suite, as workertest.Echo, Markers and Wrong describe them, for the Python binding."""

import asyncio
import json
import os

import xebec

CONTEXTS = os.environ.get("XEBEC_CONFORMANCE_CONTEXTS") == "1"
CONFIDENCES = os.environ.get("XEBEC_CONFORMANCE_CONFIDENCES") == "1"
FEEDBACK = os.environ.get("XEBEC_CONFORMANCE_FEEDBACK") == "1"

told = b""
labels_seen = [0, 0]  # right, all


def echo(batch):
    if isinstance(batch, dict):
        return tuple(batch.values())
    return batch


def markers(batch, contexts=None):
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
        elif data.startswith(b"context"):
            data = contexts[i]
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


predict = {"echo": echo, "markers": markers, "wrong": wrong}[os.environ["XEBEC_CONFORMANCE_MODEL"]]


def sure(batch, *contexts):
    outputs = predict(batch, *contexts)
    return outputs, [0.5] * len(outputs)


async def on_a_loop(*arguments):
    return await asyncio.get_running_loop().run_in_executor(None, predict, *arguments)


CONCURRENCY = os.environ.get("XEBEC_CONFORMANCE_CONCURRENCY", "1")

xebec.serve(
    on_a_loop if "async" in CONCURRENCY else sure if CONFIDENCES else predict,
    concurrency=int(CONCURRENCY.replace("async", "")),
    contexts=CONTEXTS,
    confidences=CONFIDENCES,
    feedback=feedback if FEEDBACK else None,
    accuracy=accuracy if FEEDBACK else None,
)
