"""Answers a conversation with its last message in capitals, word by word."""

import json

import xebec


def predict(batch):
    for word in json.loads(batch[0])[-1]["content"].split():
        yield word.upper() + " "


xebec.serve(predict, text=True, concurrency=16)
