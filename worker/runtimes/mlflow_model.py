"""Serves a directory that MLflow has saved, by its python_function flavour.

    python model.py model               serves it; the gateway runs this
    python model.py model --describe    prints its inputs and outputs as JSON; `xebec deploy DIRECTORY` runs this

Inputs and outputs are those of the signature that the model was logged with. A signature of columns becomes an input for
each column, and predict gets a frame; one of tensors becomes these tensors.
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
    import mlflow.exceptions
    import mlflow.pyfunc
    import numpy as np
    import pandas
except ImportError as e:
    missing(e, "mlflow-skinny", "numpy", "pandas")

COLUMNS = {"boolean": "bool", "integer": "int32", "long": "int64", "float": "float32", "double": "float64", "string": "string", "binary": "bytes"}
# The package that has a module which a flavour imports.
PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow", "sentence_transformers": "sentence-transformers"} | {
    name: name for name in "catboost cloudpickle joblib keras lightgbm onnx onnxruntime polars prophet scipy skops spacy statsmodels tensorflow torch transformers xgboost".split()
}


def tensors(schema, what):
    """What a schema of MLflow declares: tensors, and whether they are columns of a frame."""
    found = []
    for i, entry in enumerate(schema.to_dict()):
        name = entry.get("name") or (what if len(schema.to_dict()) == 1 else f"{what}_{i}")
        if entry["type"] == "tensor":
            spec = entry["tensor-spec"]
            dtype = "string" if spec["dtype"] in ("str", "object") else spec["dtype"]
            found.append({"name": name, "dtype": dtype, "shape": list(spec["shape"][1:])})
        elif entry["type"] in COLUMNS:
            found.append({"name": name, "dtype": COLUMNS[entry["type"]], "shape": []})
        else:
            sys.exit(f"its signature has a column {name!r} of type {entry['type']!r}: expected one of {', '.join(COLUMNS)}, or a tensor")
    return found


class Served:
    def __init__(self, path):
        try:
            self.model = mlflow.pyfunc.load_model(path)
        except ImportError as e:
            package = PACKAGES.get((e.name or "").split(".")[0])
            if package is None:  # never the name of a module: another package may have it
                sys.exit(
                    f"{path}: {e}: if that is a package, name it with --requirements FILE; if it is code of yours, save the model with "
                    "code_paths=[FILE], which brings the code along"
                )
            missing(e, "mlflow-skinny", "numpy", "pandas", package)
        self.signature = self.model.metadata.signature
        if self.signature is None or self.signature.inputs is None:
            sys.exit(f"{path}: was logged without a signature: log it with signature=mlflow.models.infer_signature(inputs, outputs)")
        self.frames = not self.signature.inputs.is_tensor_spec()
        self.inputs = tensors(self.signature.inputs, "input")

    def answer(self, batch):
        columns = batch if isinstance(batch, dict) else {self.inputs[0]["name"]: batch}
        if self.frames:
            given = pandas.DataFrame({i["name"]: columns[i["name"]] for i in self.inputs})
        else:
            given = {i["name"]: np.asarray(columns[i["name"]]) for i in self.inputs}
            given = given if self.signature.inputs.has_input_names() else next(iter(given.values()))
        return self.model.predict(given)

    def outputs(self, answer):
        """The answer as a dict of arrays by name."""
        if isinstance(answer, pandas.DataFrame):
            return {str(name): answer[name].to_numpy() for name in answer.columns}
        if isinstance(answer, dict):
            return {str(name): np.asarray(value) for name, value in answer.items()}
        return {"output": np.asarray(answer)}

    def describe(self):
        probe = {}
        for i in self.inputs:
            whole = [2] + [8 if d < 0 else d for d in i["shape"]]
            probe[i["name"]] = np.full(whole, "", object) if i["dtype"] in ("string", "bytes") else np.zeros(whole, i["dtype"])
        try:
            found = self.outputs(self.answer(probe))
        except Exception as e:
            print(f"the model refuses zeros, so its outputs are as its signature declares them: {e}", file=sys.stderr)
            found = {}
        outputs = [
            {"name": name, "dtype": "string" if v.dtype.kind in "OU" else str(v.dtype), "shape": list(v.shape[1:])} for name, v in found.items() if v.shape[:1] == (2,)
        ]
        if not outputs and self.signature.outputs is not None:
            outputs = tensors(self.signature.outputs, "output")
        if not outputs:
            sys.exit("its outputs cannot be found out: log it with signature=mlflow.models.infer_signature(inputs, outputs)")
        return {"inputs": self.inputs, "outputs": outputs}

    def predict(self, batch):
        outputs = self.outputs(self.answer(batch))
        outputs = {name: v.astype(object) if v.dtype.kind == "U" else v for name, v in outputs.items()}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def refusing(predict, *refusals):
    """Predict, with the exceptions by which the library refuses values as errors of the caller, who gets the first line of their text."""
    import xebec

    def refuse(batch):
        try:
            return predict(batch)
        except refusals as e:
            raise xebec.Error((str(e).strip() or type(e).__name__).splitlines()[0]) from e

    return refuse


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--allow-pickle", action="store_true")
    parser.add_argument("--describe", action="store_true")
    arguments = parser.parse_args()
    served = Served(arguments.model)
    if arguments.describe:
        print(json.dumps(served.describe()))
    else:
        import xebec

        xebec.serve(refusing(served.predict, ValueError, mlflow.exceptions.MlflowException), text=all(i["dtype"] != "bytes" for i in served.inputs))
