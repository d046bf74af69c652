"""Tensors that the tests send: every datatype with two queries, at the bounds of its values."""

import numpy as np

FOUR = np.array([[1, 2, 3, 4], [5, 6, 7, 8.5]], dtype=np.float32)


def integers(datatype, kind):
    i = np.iinfo(kind)
    return datatype, np.array([[i.min, i.max], [0, 7]], dtype=kind)


EVERY = {
    "bool": ("BOOL", np.array([[True, False], [False, True]])),
    "int8": integers("INT8", np.int8),
    "int16": integers("INT16", np.int16),
    "int32": integers("INT32", np.int32),
    "int64": integers("INT64", np.int64),
    "uint8": integers("UINT8", np.uint8),
    "uint16": integers("UINT16", np.uint16),
    "uint32": integers("UINT32", np.uint32),
    "uint64": integers("UINT64", np.uint64),
    "float16": ("FP16", np.array([[0.1, 65504], [-0.5, 6e-8]], dtype=np.float16)),
    "float32": ("FP32", np.array([[0.1, 3.4e38], [-1e-45, 7]], dtype=np.float32)),
    "float64": ("FP64", np.array([[0.1, 1.7e308], [-5e-324, 7]], dtype=np.float64)),
    "string": ("BYTES", np.array([["one", ""], ["dritter ä€", "line\n\"quoted\""]], dtype=object)),
}
