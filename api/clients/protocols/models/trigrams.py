"""Embeds texts by their trigrams: each adds one to the dimension that its hash names. Texts that share words are near to each other."""

import zlib

import numpy as np
import xebec


def predict(batch):
    vectors = np.zeros((len(batch), 256), dtype=np.float32)
    for vector, text in zip(vectors, batch):
        padded = f"  {text.lower()} "
        for i in range(len(padded) - 2):
            vector[zlib.crc32(padded[i : i + 3].encode()) % 256] += 1
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


xebec.serve(predict, text=True)
