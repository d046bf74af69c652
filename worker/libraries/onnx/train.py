"""Trains a network on scikit-learn's digits and converts it; writes model.onnx."""

from pathlib import Path

from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

if __name__ == "__main__":
    x, y = load_digits(return_X_y=True)
    network = MLPClassifier((32,), max_iter=60, random_state=7).fit(x[:1200], y[:1200])
    converted = to_onnx(network, initial_types=[("x", FloatTensorType([None, 64]))], options={"zipmap": False})
    Path("model.onnx").write_bytes(converted.SerializeToString())
