"""Trains on the breast cancer data of scikit-learn with a tenth of the values missing; writes model.json."""

import numpy as np
import xgboost
from sklearn.datasets import load_breast_cancer


def data():
    x, y = load_breast_cancer(return_X_y=True)
    x = x.astype(np.float32)
    x[np.random.default_rng(7).random(x.shape) < 0.1] = np.nan
    return x, y


if __name__ == "__main__":
    x, y = data()
    matrix = xgboost.DMatrix(x[:400], y[:400])
    xgboost.train({"objective": "binary:logistic", "max_depth": 3, "nthread": 1}, matrix, 20).save_model("model.json")
