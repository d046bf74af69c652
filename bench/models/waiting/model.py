"""A model that waits and does not compute, so that many replicas fit on few cores: WAIT_MS for each batch. It answers 0."""

import os
import time

import numpy as np
import xebec

SECONDS = float(os.environ.get("WAIT_MS", "0")) / 1e3


def predict(batch):
    if SECONDS:
        time.sleep(SECONDS)
    return np.zeros(len(batch), dtype="int64")


xebec.serve(predict)
