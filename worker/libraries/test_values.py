"""What callers send by mistake, and files that cannot be served: each gets an error in its own words. A value that the library refuses is an error
of its caller (400), alone in its batch, and a file that cannot be loaded is refused by deploy."""

import joblib
import mlflow.pyfunc
import mlflow.sklearn
import onnx
import pytest
import test_files
from dropping import deploy
from mlflow.models import infer_signature
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler
from test_libraries import outputs, post


def lookup(path):
    """A graph that looks rows up, as embeddings do: of a table of three."""
    helper, table = onnx.helper, onnx.helper.make_tensor("table", onnx.TensorProto.FLOAT, [3, 2], [0, 1, 2, 3, 4, 5])
    node = helper.make_node("Gather", ["table", "ids"], ["rows"], axis=0)
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch"])
    rows = helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["batch", 2])
    graph = helper.make_graph([node], "lookup", [ids], [rows], [table])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


BONN = {"age": 20, "city": "Bonn"}
# What is sent, and what the answer is: an output, or words of the error. Each is sent to a model of its own kind.
SENT = {
    "frame.joblib": (
        test_files.frame,
        [
            (BONN, "young"),  # a whole number for a number
            ([20.0, "Bonn"], "young"),  # in the order of the columns
            ({"age": "20", "city": "Bonn"}, 'age: expected a number, found "20"'),
            ({"age": 20, "city": None}, "city: expected a string, found null"),
            ({"age": None, "city": "Bonn"}, "contains NaN"),
            ({"age": 20, "city": "Paris"}, "unknown categories ['Paris']"),
            ({"age": 20}, 'the input "city" (string[]) is missing'),
            ({"age": 20, "town": "Bonn", "city": "Bonn"}, 'unknown input "town": expected "age", "city"'),
        ],
    ),
    "texts.joblib": (
        test_files.texts,
        [("", "neg"), (5, "expected a string, found 5"), (None, "expected a string, found null"), (["good"], "expected a string, found an array")],
    ),
    "trees.txt": (
        test_files.trees,
        [
            ([0] * 9, "expected 10 numbers for float64[10], found 9"),
            (["0"] * 10, 'expected a number, found "0"'),
            ([[0] * 10], "expected a number, found an array"),
            ("0", "expected an array of numbers"),
        ],
    ),
    "lookup.onnx": (
        lookup,
        [(2, [4, 5]), (-3, [0, 1]), (7, "out of data bounds"), (1.5, "1.5")],
    ),
    "mlflow-columns": (
        test_files.mlflow_columns,
        [(None, "contains NaN"), ("old", 'expected a number, found "old"')],
    ),
}


@pytest.mark.parametrize("file", SENT)
def test_what_people_send(bare, tmp_path, record_property, file):
    record_property("file", f"{file}: strings, nulls, missing columns, wrong shapes")
    record_property("compared with", "the words of the error, or the output")
    write, sent = SENT[file]
    path, name = tmp_path / f"values-{file}", f"values-{file.split('.')[0]}"
    write(path)
    for requirements in path.glob("requirements.txt"):
        requirements.unlink()
    made = deploy(bare, path, "--allow-pickle")
    assert made.returncode == 0, made
    for value, want in sent:
        status, answer = post(bare, name, {"input": value})
        if status == 200:
            assert answer["output"] == want, (value, answer)
        else:
            assert (status, answer["code"] in ("invalid_argument", "invalid_input")) == (400, True), (value, answer)
            assert want in answer["cause"], (value, answer)
    if file == "frame.joblib":  # each alone in its batch, and as frames
        status, answer = post(bare, name, {"input_batch": [BONN, {"age": 20, "city": "Paris"}, BONN, {"age": None, "city": "Bonn"}]})
        assert [p.get("code", p.get("output")) for p in answer["batch_predictions"]] == ["young", "invalid_input", "young", "invalid_input"], answer
        assert outputs(bare, name, [{"age": 20, "city": "Bonn"}], "dataframe_records") == ["young"]
        status, answer = post(bare, name, {"dataframe_split": {"columns": ["town", "age"], "data": [["Bonn", 20]]}})
        assert status == 400 and 'unknown column "town"' in answer["cause"], answer


def scaler(path):
    joblib.dump(StandardScaler(), path)


def damaged(path):
    joblib.dump(LinearRegression().fit([[1.0]], [1.0]), path)
    path.write_bytes(path.read_bytes()[:100])


def untrained(path):
    joblib.dump(LinearRegression(), path)


def unsigned(path):
    mlflow.sklearn.save_model(LinearRegression().fit([[1.0]], [1.0]), path, serialization_format="pickle", pip_requirements=[])
    (path / "requirements.txt").unlink()


def fixed(path):
    lookup(path)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, path)


class Doubling(LinearRegression):
    """An estimator of the author's own, whose module the gateway does not have."""


def foreign(path):
    joblib.dump(Doubling().fit([[1.0]], [1.0]), path)


def foreign_function(path):
    mlflow.pyfunc.save_model(path, python_model=test_files.Scaled(), signature=infer_signature(test_files.FRAME, test_files.FRAME), pip_requirements=[])
    (path / "requirements.txt").unlink()


REFUSED = {
    "foreign.joblib": (foreign, "No module named 'test_values': if that is a package, name it"),
    "foreign-function": (foreign_function, "code_paths"),
    "scaler.joblib": (scaler, "a StandardScaler: expected an estimator with a method predict"),
    "damaged.joblib": (damaged, "cannot be served"),
    "untrained.joblib": (untrained, "--input"),
    "unsigned": (unsigned, "logged without a signature"),
    "fixed.onnx": (fixed, "expected a first dimension that is the batch"),
}


@pytest.mark.parametrize("file", REFUSED)
def test_a_file_that_deploy_refuses(bare, tmp_path, record_property, file):
    write, words = REFUSED[file]
    record_property("file", f"{file}, which cannot be served")
    record_property("compared with", "the words of deploy")
    path = tmp_path / file
    write(path)
    refused = deploy(bare, path, "--allow-pickle")
    assert refused.returncode == 1 and words in refused.stderr, refused
    assert not list((tmp_path / "made").glob("*/1")), "deploy left a model directory behind"
