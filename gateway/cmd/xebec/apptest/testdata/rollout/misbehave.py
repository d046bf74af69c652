"""A model that echoes numbers, and misbehaves: misbehave.py HOW [FILE]

slow   takes its time with each batch
fails  raises
nan    its process ends over a number that is none
waits  does nothing until FILE is there
"""

import os
import sys
import time

import numpy
import xebec

# Far beyond what a busy machine makes of a quick model's slowest answers.
SLOW_SECONDS = 0.4
LOOK_SECONDS = 0.02


def predict(batch):
    match sys.argv[1]:
        case "slow":
            time.sleep(SLOW_SECONDS)
        case "fails":
            raise ValueError("this version is broken")
        case "nan" if numpy.isnan(batch).any():
            os._exit(7)  # as native code that crashes does
        case "waits":
            while not os.path.exists(sys.argv[2]):
                time.sleep(LOOK_SECONDS)
    return batch


xebec.serve(predict)
