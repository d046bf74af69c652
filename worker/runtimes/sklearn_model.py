"""Serves an estimator of scikit-learn, or one with its interface, that joblib or pickle has saved.

    python model.py model.joblib --allow-pickle               serves it; the gateway runs this
    python model.py model.joblib --allow-pickle --describe    prints its inputs and outputs as JSON

Loading a pickle runs whatever code its writer put in, so it needs --allow-pickle. A query is a row of numbers; a text,
if the estimator begins with a vectorizer; or an object with a value for each column, if it was fitted on a frame. The
answer is what the estimator's predict returns, and its confidence the largest of its predict_proba.
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
    import joblib
    import numpy as np
    import sklearn  # noqa: F401  (a pickle of another library's estimator would name only that)
except ImportError as e:
    missing(e, "scikit-learn", "joblib", "numpy")


def steps(estimator):
    """The estimator and all those in it, outermost first."""
    yield estimator
    for _, step in getattr(estimator, "steps", []):
        yield from steps(step)
    for attribute in ("best_estimator_", "estimator"):
        inner = getattr(estimator, attribute, None)
        if hasattr(inner, "get_params"):
            yield from steps(inner)


def takes_text(estimator):
    """Whether queries are texts: the first step is a vectorizer."""
    first = estimator
    while getattr(first, "steps", None) or getattr(first, "best_estimator_", None):
        first = first.steps[0][1] if getattr(first, "steps", None) else first.best_estimator_
    return hasattr(first, "build_analyzer")


def text_columns(estimator):
    """The columns of a frame that encoders of categories or vectorizers read as text."""
    found = set()
    for step in steps(estimator):
        for _, transformer, columns in getattr(step, "transformers_", []):
            if not hasattr(transformer, "get_params"):
                continue
            names = [columns] if isinstance(columns, str) else list(columns)
            for inner in steps(transformer):
                if hasattr(inner, "build_analyzer"):
                    found.update(names)
                for name, categories in zip(names, getattr(inner, "categories_", [])):
                    if np.asarray(categories).dtype.kind in "OU":
                        found.add(name)
    return found


def is_missing(value):
    return value is None or isinstance(value, float) and np.isnan(value)


def missing_texts(estimator):
    """What a missing text is, by the column of a frame: a category of an encoder that is missing itself, or what an imputer replaces.
    Columns that have the empty text as a category are left out: there it is a value."""
    found = {}
    for step in steps(estimator):
        for _, transformer, columns in getattr(step, "transformers_", []):
            if not hasattr(transformer, "get_params"):
                continue
            names = [columns] if isinstance(columns, str) else list(columns)
            imputed = None
            for inner in steps(transformer):
                if imputed is None and hasattr(inner, "missing_values") and hasattr(inner, "statistics_"):
                    imputed = [inner.missing_values] if is_missing(inner.missing_values) else []
                for name, categories in zip(names, getattr(inner, "categories_", [])):
                    missing = [c for c in categories if is_missing(c)] or imputed
                    if missing and "" not in list(categories):
                        found[name] = missing[0]
    return found


class Served:
    def __init__(self, path, declared=None):
        try:
            self.estimator = joblib.load(path)
        except (ImportError, AttributeError) as e:  # a pickle has the names of its classes and functions, and not their code
            sys.exit(
                f"{path}: {e}: if that is a package, name it, with scikit-learn and joblib, in --requirements FILE; if it is code of yours, write a model.py "
                "beside that code, which loads the file"
            )
        if not hasattr(self.estimator, "predict"):
            sys.exit(f"{path}: holds a {type(self.estimator).__name__}: expected an estimator with a method predict")
        self.text = takes_text(self.estimator)
        names = getattr(self.estimator, "feature_names_in_", None)
        self.columns = [] if names is None or self.text else [str(name) for name in names]
        texts = text_columns(self.estimator) if self.columns else ()
        self.missing = {name: value for name, value in missing_texts(self.estimator).items() if name in texts} if self.columns else {}
        self.proba = hasattr(self.estimator, "predict_proba")
        self.declared = declared
        if self.columns:
            try:
                import pandas  # noqa: F401  (the estimator was fitted on a frame)
            except ImportError as e:
                missing(e, "scikit-learn", "joblib", "numpy", "pandas")

    def inputs(self):
        if self.declared:
            return [self.declared]
        if self.text:
            return [{"name": "input", "dtype": "string", "shape": []}]
        if self.columns:
            texts = text_columns(self.estimator)
            return [{"name": c, "dtype": "string" if c in texts else "float64", "shape": []} for c in self.columns]
        features = getattr(self.estimator, "n_features_in_", None)
        if features is None:
            sys.exit(f"a {type(self.estimator).__name__} does not say how many numbers it takes: say it with --input 'float64[N]'")
        return [{"name": "input", "dtype": "float64", "shape": [int(features)]}]

    def predict(self, batch):
        """Returns outputs, with their confidences if it has probabilities."""
        if isinstance(batch, dict):
            import pandas

            for name, missing in self.missing.items():  # a text has no null: the empty one stands for it
                batch = {**batch, name: pandas.Series([missing if text == "" else text for text in batch[name]], dtype=object)}
            batch = pandas.DataFrame(batch, columns=self.columns)
        outputs = np.asarray(self.estimator.predict(batch))
        if outputs.dtype.kind == "U":
            outputs = outputs.astype(object)
        if not self.proba:
            return outputs
        probabilities = self.estimator.predict_proba(batch)
        if isinstance(probabilities, list):  # an answer has several classes, each with probabilities of its own
            return outputs, np.min([p.max(axis=1) for p in probabilities], axis=0)
        return outputs, probabilities.max(axis=1)

    def describe(self):
        inputs = self.inputs()
        if self.columns:
            probe = {i["name"]: ["", ""] if i["dtype"] == "string" else [0.0, 0.0] for i in inputs}
            for step in steps(self.estimator):  # an encoder may refuse categories that it does not know
                for _, transformer, columns in getattr(step, "transformers_", []):
                    names = [columns] if isinstance(columns, str) else list(columns)
                    for inner in steps(transformer) if hasattr(transformer, "get_params") else []:
                        for name, categories in zip(names, getattr(inner, "categories_", [])):
                            probe[str(name)] = [categories[0]] * 2
        elif inputs[0]["dtype"] == "string":
            probe = ["", ""]
        else:
            probe = np.zeros([2] + [8 if d < 0 else d for d in inputs[0]["shape"]], inputs[0]["dtype"])
        outputs = self.predict(probe)
        outputs = outputs[0] if self.proba else outputs
        dtype = "string" if outputs.dtype.kind == "O" else str(outputs.dtype)
        notes = [f"its classes are {', '.join(map(str, self.estimator.classes_))}"] if hasattr(self.estimator, "classes_") else []
        notes += [f"an empty text in {name} is a missing value" for name in self.missing]
        return {"inputs": inputs, "outputs": [{"name": "output", "dtype": dtype, "shape": list(outputs.shape[1:])}], "notes": notes}


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
    parser.add_argument("--input", type=json.loads)
    arguments = parser.parse_args()
    if not arguments.allow_pickle:
        sys.exit(f"{arguments.model}: loading a pickle runs the code in it: give --allow-pickle if you trust its writer")
    served = Served(arguments.model, arguments.input)
    if arguments.describe:
        print(json.dumps(served.describe()))
    else:
        import xebec

        # A category that it was not fitted on, or a missing value, is a ValueError.
        xebec.serve(refusing(served.predict, ValueError), confidences=served.proba, text=True)
