"""bfloat16, which numpy has from ml_dtypes."""

import sys

import ml_dtypes
import numpy as np
import pytest

import xebec


def test_arrays_in_and_out():
    def predict(batch):
        assert batch.dtype == ml_dtypes.bfloat16 and batch.shape == (2, 3) and not batch.flags.writeable
        return batch * 2

    got = xebec.try_predict(predict, [[1, 2.5, 1e38], [0.1, -1, 0]], inputs="bfloat16[3]", outputs="bfloat16[3]")
    assert got.dtype == ml_dtypes.bfloat16
    want = [[2, 5, np.float32(ml_dtypes.bfloat16(1e38)) * 2], [np.float32(0.2001953125), -2, 0]]
    np.testing.assert_array_equal(got.astype(np.float32), want)


def test_other_floats_are_rounded():
    got = xebec.try_predict(lambda batch: np.asarray(batch, np.float32) + 1e-4, [1.0, 2.0], inputs="float32[]", outputs="bfloat16[]")
    assert got.astype(np.float32).tolist() == [1, 2]
    ragged = xebec.try_predict(lambda batch: [item[::-1] for item in batch], [[1, 2], [3]], inputs="bfloat16[-1]", outputs="bfloat16[-1]")
    assert [item.astype(np.float32).tolist() for item in ragged] == [[2, 1], [3]]


def test_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="pip install ml_dtypes"):
        xebec.try_predict(lambda batch: batch, [1.0], inputs="bfloat16[]", outputs="bfloat16[]")
