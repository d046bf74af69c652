"""The models of the conformance suite, as workertest.Echo, Markers and Wrong describe them, for the Python binding."""

import os

import xebec

CONTEXTS = os.environ.get("XEBEC_CONFORMANCE_CONTEXTS") == "1"
CONFIDENCES = os.environ.get("XEBEC_CONFORMANCE_CONFIDENCES") == "1"


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
        out.append(data)
    return out


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


xebec.serve(sure if CONFIDENCES else predict, contexts=CONTEXTS, confidences=CONFIDENCES)
