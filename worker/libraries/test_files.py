"""Files that the libraries have written are deployed without code, and answer what each library answers in this process."""

import pickle
import sys

import cloudpickle
import joblib
import lightgbm
import mlflow.pyfunc
import mlflow.sklearn
import mlflow.xgboost
import numpy as np
import pandas
import pytest
import xgboost
from dropping import deploy
from mlflow.models import infer_signature
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from test_libraries import outputs

DIGITS, NUMBERS = load_digits(return_X_y=True)
PATIENTS, PROGRESS = load_diabetes(return_X_y=True)
SENT = DIGITS[1200:1240]
FRAME = pandas.DataFrame({"age": [20.0, 30.0, 40.0, 50.0] * 5, "city": ["Bonn", "Oslo", "Rome", "Bonn"] * 5})


def classifier():
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(DIGITS[:1200], NUMBERS[:1200])


def onnx(path, **options):
    model = classifier()
    path.write_bytes(to_onnx(model, initial_types=[("x", FloatTensorType([None, 64]))], options=options or None).SerializeToString())
    label, probabilities = model.predict(SENT), model.predict_proba(SENT)
    names = ("label", "probabilities") if options else ("output_label", "output_probability")
    return SENT, [{names[0]: int(k), names[1]: list(p)} for k, p in zip(label, probabilities)]


def graph(path):
    return onnx(path, zipmap=False)


def one_output(path):
    """As most graphs have one."""
    model = LinearRegression().fit(PATIENTS, PROGRESS)
    path.write_bytes(to_onnx(model, initial_types=[("x", FloatTensorType([None, 10]))]).SerializeToString())
    return PATIENTS[:40], model.predict(PATIENTS[:40]).reshape(-1, 1).tolist()


def estimator(path):
    joblib.dump(classifier(), path)
    return SENT, classifier().predict(SENT).tolist()


def pickled(path):
    model = LinearRegression().fit(PATIENTS, PROGRESS)
    path.write_bytes(pickle.dumps(model))
    return PATIENTS[:40], model.predict(PATIENTS[:40]).tolist()


def texts(path):
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(["fine good", "bad awful"] * 5, ["pos", "neg"] * 5)
    joblib.dump(model, path, compress=3)
    sent = ["good", "an awful day", "fine"]
    return sent, model.predict(sent).tolist()


def frame(path):
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough"), LogisticRegression())
    model.fit(FRAME, ["young", "old", "old", "old"] * 5)
    joblib.dump(model, path)
    return FRAME.to_dict("records"), model.predict(FRAME).tolist()


def boosted(path):
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 10}, xgboost.DMatrix(DIGITS[:1200], NUMBERS[:1200]), 5)
    booster.save_model(path)
    return SENT, booster.inplace_predict(np.float32(SENT)).tolist()


def trees(path):
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(PATIENTS, PROGRESS), 10)
    booster.save_model(path)
    return PATIENTS[:40], booster.predict(PATIENTS[:40]).tolist()


def mlflow_tensors(path):
    booster = xgboost.train({"objective": "reg:squarederror"}, xgboost.DMatrix(PATIENTS, PROGRESS), 5)
    answer = booster.inplace_predict(PATIENTS[:40])
    mlflow.xgboost.save_model(booster, path, signature=infer_signature(PATIENTS[:40], answer), model_format="json", pip_requirements=[])
    return PATIENTS[:40], answer.tolist()


def mlflow_columns(path):
    model = LinearRegression().fit(FRAME[["age"]], np.arange(20.0))
    answer = model.predict(FRAME[["age"]])
    mlflow.sklearn.save_model(model, path, signature=infer_signature(FRAME[["age"]], answer), serialization_format="pickle", pip_requirements=[])
    return FRAME["age"].tolist(), answer.tolist()


class Scaled(mlflow.pyfunc.PythonModel):
    """A function of a frame, as an author writes it for MLflow."""

    def predict(self, context, model_input, params=None):
        return pandas.DataFrame({"double": model_input["age"] * 2, "where": model_input["city"].str.upper()})


def mlflow_function(path):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as of a class in a notebook
    answer = Scaled().predict(None, FRAME)
    mlflow.pyfunc.save_model(path, python_model=Scaled(), signature=infer_signature(FRAME, answer), pip_requirements=[])
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    return FRAME.to_dict("records"), answer.to_dict("records")


# What is written, whether it is a pickle, what it is, and what the answers are compared with.
FILES = {
    "zipmap.onnx": (onnx, False, "ONNX of skl2onnx, with ZipMap", "the pipeline's predict and predict_proba"),
    "graph.onnx": (graph, False, "ONNX of skl2onnx", "the pipeline's predict and predict_proba"),
    "one.onnx": (one_output, False, "ONNX of skl2onnx, one output", "its predict"),
    "estimator.joblib": (estimator, True, "joblib of scikit-learn, a pipeline", "its predict"),
    "regression.pkl": (pickled, True, "pickle of scikit-learn", "its predict"),
    "texts.joblib": (texts, True, "compressed joblib, texts", "the pipeline's predict"),
    "frame.joblib": (frame, True, "joblib, fitted on a frame", "the pipeline's predict of the frame"),
    "boosted.json": (boosted, False, "XGBoost, JSON", "inplace_predict"),
    "binary.ubj": (boosted, False, "XGBoost, UBJSON", "inplace_predict"),
    "trees.txt": (trees, False, "LightGBM, text", "Booster.predict"),
    "mlflow-tensors": (mlflow_tensors, False, "MLflow, flavour xgboost, tensors", "inplace_predict"),
    "mlflow-columns": (mlflow_columns, True, "MLflow, flavour sklearn, columns", "predict of the frame"),
    "mlflow-function": (mlflow_function, True, "MLflow, flavour python_function", "predict of the frame"),
}


@pytest.mark.parametrize("file", FILES)
def test_deploy_a_file(bare, tmp_path, record_property, file):
    write, is_pickle, kind, compared = FILES[file]
    record_property("file", kind)
    record_property("compared with", compared)
    path = tmp_path / file
    sent, expected = write(path)
    for requirements in path.glob("requirements.txt"):
        requirements.unlink()  # the gateway's Python has the libraries
    refused = deploy(bare, path) if is_pickle else None
    assert refused is None or refused.returncode == 1 and "--allow-pickle" in refused.stderr, refused
    made = deploy(bare, path, *(["--allow-pickle"] if is_pickle else []))
    assert made.returncode == 0, made
    answers = outputs(bare, file.split(".")[0], sent.tolist() if isinstance(sent, np.ndarray) else sent)
    assert len(answers) == len(expected)
    for answer, want in zip(answers, expected):
        if isinstance(want, dict):
            for name, value in want.items():
                if isinstance(value, str):
                    assert answer[name] == value
                    continue
                np.testing.assert_allclose(answer[name], value, rtol=1e-4, atol=1e-5)
        elif isinstance(want, str):
            assert answer == want
        else:
            np.testing.assert_allclose(answer, want, rtol=1e-4 if file.endswith(".onnx") else 1e-6)  # ONNX computes in float32
