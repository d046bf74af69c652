"""Generates the prompt's words in capitals. The prompt "forever NAME" has no end but that its caller leaves, which "ended NAME" waits for."""

import collections
import threading

import xebec

ends = collections.defaultdict(threading.Event)


def forever(name):
    try:
        while True:
            yield ["AGAIN "]
    finally:
        ends[name].set()


def predict(batch, parameters):
    words = str(batch[0]).split()
    if words[:1] == ["forever"]:
        yield from forever(words[1])
    if words[:1] == ["ended"]:
        ends[words[1]].wait()
    for word in words[: parameters[0].get("max_tokens", 64)]:
        yield [word.upper() + " "]


xebec.serve(predict, parameters=True, concurrency=16)
