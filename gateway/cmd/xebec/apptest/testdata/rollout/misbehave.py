"""A model that echoes numbers, with a fault: misbehave.py HOW [FILE]

slow   sleeps for SLOW_SECONDS in each batch
fails  raises an exception
nan    ends its process on a NaN
waits  waits until FILE exists
"""

import os
import sys
import time

import numpy
import xebec

# Far longer than the slowest answer of a fast model on a busy machine.
SLOW_SECONDS = 0.4
LOOK_SECONDS = 0.02


def predict(batch):
    match sys.argv[1]:
        case "slow":
            time.sleep(SLOW_SECONDS)
        case "fails":
            raise ValueError("this version is broken")
        case "nan" if numpy.isnan(batch).any():
            os._exit(7)  # like a crash of native code
        case "waits":
            while not os.path.exists(sys.argv[2]):
                time.sleep(LOOK_SECONDS)
    return batch


xebec.serve(predict)
