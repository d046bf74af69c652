"""Answers with one word after the other."""

import time

import xebec


def predict(batch):
    # A generator is called for each query alone: batch has one text.
    for word in batch[0].split():
        time.sleep(0.1)  # in practice: the model's next step
        yield word


xebec.serve(predict)
