"""Trains on the diabetes data of scikit-learn; writes model.txt."""

import lightgbm
from sklearn.datasets import load_diabetes

if __name__ == "__main__":
    x, y = load_diabetes(return_X_y=True)
    trained = lightgbm.train({"objective": "regression", "num_threads": 1, "verbose": -1, "seed": 7}, lightgbm.Dataset(x[:300], y[:300]), 30)
    trained.save_model("model.txt")
