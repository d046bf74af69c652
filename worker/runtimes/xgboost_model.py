"""Serves a model that XGBoost has saved as JSON or UBJSON.

    python model.py model.json               serves it; the gateway runs this
    python model.py model.json --describe    prints its inputs and outputs as JSON; `xebec deploy model.json` runs this

A query is a row of numbers in the order of the training columns; a value that is missing is null, or NaN.
"""

import argparse
import json
import sys


def missing(e, *requirements):
    """Ends the program: a library is not there. `xebec deploy` reads the requirements."""
    if "--describe" in sys.argv:
        print(json.dumps({"missing": e.name, "requirements": requirements}))
        sys.exit()
    sys.exit(f"{e}: {sys.executable} needs {' and '.join(requirements)}. Install them there, or name them in requirements.txt beside the model")


try:
    import numpy as np
    import xgboost
except ImportError as e:
    missing(e, "xgboost", "numpy")


def describe(booster):
    features = booster.num_features()
    answer = booster.inplace_predict(np.zeros((2, features), np.float32), validate_features=False)
    notes = [f"the columns are {', '.join(booster.feature_names)}"] if booster.feature_names else []
    return {
        "inputs": [{"name": "input", "dtype": "float32", "shape": [features]}],
        "outputs": [{"name": "output", "dtype": str(answer.dtype), "shape": list(answer.shape[1:])}],
        "notes": notes,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--describe", action="store_true")
    arguments = parser.parse_args()
    booster = xgboost.Booster(model_file=arguments.model)
    if arguments.describe:
        print(json.dumps(describe(booster)))
    else:
        import xebec

        xebec.serve(lambda batch: booster.inplace_predict(batch, validate_features=False))
