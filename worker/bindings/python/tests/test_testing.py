"""xebec.testing, in processes of their own: importing it changes what serve does."""

import subprocess
import sys

import pytest

MANIFEST = """
kind: Model
name: mean
inputs:  [{name: input, dtype: float32, shape: [3]}]
outputs: [{name: output, dtype: float32, shape: []}]
run: {command: [python, model.py]}
"""

MODEL = """
import numpy
import xebec

offset = numpy.loadtxt("offset.txt")  # the working directory is the model's


def predict(batch):
    assert batch.dtype == "float32" and not batch.flags.writeable
    return [xebec.Error("negative") if row.min() < 0 else row.mean() + offset for row in batch]


xebec.serve(predict)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "offset.txt").write_text("0.5")

    def run(code, manifest=MANIFEST, model=MODEL):
        (tmp_path / "xebec.yaml").write_text(manifest)
        (tmp_path / "model.py").write_text(model)
        (tmp_path / "tests").mkdir(exist_ok=True)
        test = tmp_path / "tests" / "check.py"
        test.write_text("import xebec\nimport xebec.testing\n" + code)
        return subprocess.run([sys.executable, str(test)], capture_output=True, text=True, cwd="/")

    return run


def passes(done):
    assert done.returncode == 0, done.stderr


def test_outputs_are_those_of_callers(run):
    passes(
        run(
            """
model = xebec.testing.load(__file__)
assert model.predict([1, 2, 6]) == 3.5 and type(model.predict([1, 2, 6])) is float
outputs = model.predict_batch([[1, 2, 3], [-1, 0, 0]])
assert outputs[0] == 2.5 and str(outputs[1]) == "negative"
try:
    model.predict([-1, 0, 0])
except xebec.Error as e:
    assert str(e) == "negative"
else:
    raise SystemExit("the refusal is lost")
"""
        )
    )


def test_a_module_that_was_imported(run, tmp_path):
    imports = f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path.insert(0, '.')\nimport model\n"
    passes(run(imports + "assert xebec.testing.load(model).predict([0, 0, 3]) == 1.5"))


def test_what_does_not_fit(run):
    load = "xebec.testing.load(__file__)"
    assert "expected (3,)" in run(load + ".predict([1, 2])").stderr or "float32[3]" in run(load + ".predict([1, 2])").stderr
    wrong = run(load + ".predict([1, 2, 3])", model="import xebec\nxebec.serve(lambda batch: batch)\n")
    assert "BadOutput" in wrong.stderr
    assert "called xebec.serve 0 times" in run(load, model="x = 1\n").stderr
    assert "stream is True, but predict is no generator" in run(load, MANIFEST + "stream: true\n").stderr
    assert "names no script" in run(load, MANIFEST.replace("[python, model.py]", "[./model]")).stderr


def test_several_inputs_and_outputs_streams_and_options(run):
    manifest = MANIFEST.replace("shape: [3]}]", "shape: [2]}, {name: scale, dtype: int64, shape: []}]").replace(
        "shape: []}]\nrun", "shape: [2]}, {name: text, dtype: string, shape: []}]\nrun"
    )
    passes(
        run(
            """
model = xebec.testing.load(__file__)
assert model.predict({"input": [1, 2], "scale": 3}, context="ann", parameters={"x": 1}) == {"output": [3, 6], "text": "ann1"}
assert model.confidences([{"input": [1, 2], "scale": 3}], contexts=["ann"], parameters=[{"x": 1}]) == [0.25]
""",
            manifest,
            """
import xebec

def predict(batch, contexts, parameters):
    scaled = batch["input"] * batch["scale"][:, None].astype("float32")
    texts = [c + str(p["x"]) for c, p in zip(contexts, parameters)]
    return {"output": scaled, "text": texts}, [0.25] * len(contexts)

if __name__ == "__main__":
    xebec.serve(predict, contexts=True, parameters=True, confidences=True, text=True)
""",
        )
    )
    manifest = MANIFEST.replace("float32, shape: [3]", "string, shape: []").replace("float32", "string") + "stream: true\n"
    passes(
        run(
            'assert xebec.testing.load(__file__).stream("a b") == ["a", "b"]',
            manifest,
            "import xebec\n\ndef predict(batch):\n    yield from batch[0].split()\n\nxebec.serve(predict)\n",
        )
    )


def test_rows_nulls_and_frames(run):
    manifest = MANIFEST.replace(
        "[{name: input, dtype: float32, shape: [3]}]", "[{name: age, dtype: float64, shape: []}, {name: kind, dtype: string, shape: []}]"
    )
    model = """
import xebec

def predict(batch):
    return [-1 if age != age else age + len(kind) for age, kind in zip(batch["age"], batch["kind"])]

xebec.serve(predict)
"""
    passes(
        run(
            """
import pandas
model = xebec.testing.load(__file__)
assert model.predict([3, "ab"]) == model.predict({"kind": "ab", "age": 3}) == 5
assert model.predict([None, "ab"]) == -1
assert model.predict_batch([[1, "a"], {"age": None, "kind": "b"}]) == [2, -1]
assert model.predict_batch(pandas.DataFrame({"kind": ["a", "b"], "age": [1.5, None]})) == [2.5, -1]
""",
            manifest,
            model,
        )
    )
    wrong = run("xebec.testing.load(__file__).predict([3])", manifest, model)
    assert "input 0 of model mean: expected a dict with the keys ['age', 'kind'], or a list of 2 values in this order" in wrong.stderr
    passes(
        run(
            "assert str(xebec.testing.load(__file__).predict([1, None, 2])) == 'nan'",
            model="import xebec\nxebec.serve(lambda batch: batch.mean(axis=1))\n",
        )
    )
    unknown = run("xebec.testing.load(__file__).predict({'inptu': [1, 2, 3]})")
    assert "expected a dict with the keys ['input']" in unknown.stderr
