"""Answers each query with the number that it was started with."""

import sys

import numpy as np
import xebec

xebec.serve(lambda batch: np.full(len(batch), int(sys.argv[1]), dtype=np.int64))
