"""Serves a model that LightGBM has saved as text.

    python model.py model.txt               serves it; the gateway runs this
    python model.py model.txt --describe    prints its inputs and outputs as JSON; `xebec deploy model.txt` runs this

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
    import lightgbm
    import numpy as np
except ImportError as e:
    missing(e, "lightgbm", "numpy")


def describe(booster):
    answer = booster.predict(np.zeros((2, booster.num_feature())))
    names = booster.feature_name()
    return {
        "inputs": [{"name": "input", "dtype": "float64", "shape": [booster.num_feature()]}],
        "outputs": [{"name": "output", "dtype": str(answer.dtype), "shape": list(answer.shape[1:])}],
        "notes": [] if names[:1] == ["Column_0"] else [f"the columns are {', '.join(names)}"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--describe", action="store_true")
    arguments = parser.parse_args()
    booster = lightgbm.Booster(model_file=arguments.model)
    if arguments.describe:
        print(json.dumps(describe(booster)))
    else:
        import xebec

        xebec.serve(booster.predict)
