"""A toy of a language model whose step takes a known time: 5 ms, and 0.1 ms for each sequence that is running.

A query is "ID LENGTH"; its outputs are ID.0, ID.1, ... until there are LENGTH of them. BATCHING=step evaluates it in streams, and sequences
join and leave between two steps. BATCHING=whole answers a batch when its longest sequence has ended; sequences that have ended cost nothing
from then on. A step sleeps, so that the cores are left to the gateway and the clients.
"""

import os
import time

import xebec

FIXED_SECONDS, EACH_SECONDS = 0.005, 0.0001


def run_step(running):
    time.sleep(FIXED_SECONDS + EACH_SECONDS * running)


class Sequence:
    def __init__(self, text):
        self.id, _, length = text.partition(" ")
        self.length, self.made = int(length), 0

    def next(self):
        self.made += 1
        return f"{self.id}.{self.made - 1}"

    def ended(self):
        return self.made == self.length


def start(batch):
    return Sequence(batch[0])


def step(sequences):
    run_step(len(sequences))
    outputs = []
    for s in sequences:
        output = s.next()
        outputs.append(xebec.Last(output) if s.ended() else output)
    return outputs


def predict(batch):
    sequences = [Sequence(text) for text in batch]
    outputs = [[] for _ in batch]
    while running := [i for i, s in enumerate(sequences) if not s.ended()]:
        run_step(len(running))
        for i in running:
            outputs[i].append(sequences[i].next())
    return [" ".join(each) for each in outputs]


if os.environ["BATCHING"] == "step":
    xebec.serve(start, step=step, text=True, concurrency=int(os.environ["PLACES"]))
else:
    xebec.serve(predict, text=True)
