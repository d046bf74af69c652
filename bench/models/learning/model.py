"""Serves one model of train.py, as the environment says.

LEARNED            the file that train.py has kept
DEGRADED_WHILE     a path: while something is there the model is a bad one (figure 8). Looked for once a batch.
STRAGGLES          the part of the batches that take 30 to 60 ms longer (figure 9)
STRAGGLES_SEED     of the random numbers that decide which
"""

import os
import random
import time

import joblib
import xebec

from learned import degraded

model = joblib.load(os.environ["LEARNED"])
switch = os.environ.get("DEGRADED_WHILE")
straggles = float(os.environ.get("STRAGGLES", "0"))
draw = random.Random(os.environ.get("STRAGGLES_SEED"))


def predict(batch):
    if straggles and draw.random() < straggles:
        time.sleep(draw.uniform(0.030, 0.060))
    labels = model.predict(batch)
    return degraded(batch, labels) if switch and os.path.exists(switch) else labels


xebec.serve(predict)  # batch: an ndarray (n, pixels) of uint8, a view of shared memory
