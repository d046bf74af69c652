"""What callers get over HTTP is what each library answers when it is called in this process, with the same model and the same inputs."""

import base64
import concurrent.futures
import importlib.util
import io
import json
import time
import urllib.error
import urllib.request

import joblib
import lightgbm
import numpy as np
import onnxruntime
import pytest
import xgboost
from PIL import Image
from sklearn.datasets import load_diabetes, load_digits

PATIENT = {"Xebec-Slo-Ms": "60000"}  # far more than a busy machine needs


def post(gateway, name, data, content_type="application/json", path="{}/predict", **headers):
    """Returns the status and the answer, decoded if it is JSON."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    sent = dict(PATIENT, **{"Content-Type": content_type}, **headers)
    request = urllib.request.Request(f"http://{gateway.functions}/{path.format(name)}", body, sent)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            status, received, kind = answer.status, answer.read(), answer.headers["Content-Type"]
    except urllib.error.HTTPError as e:
        status, received, kind = e.code, e.read(), e.headers["Content-Type"]
    return status, json.loads(received) if kind.split(";")[0] == "application/json" else received


def outputs(gateway, name, inputs, member="input_batch"):
    """Returns the outputs of a batch. Each must be the model's own."""
    status, answer = post(gateway, name, {member: inputs})
    assert status == 200, answer
    assert not any(p["default"] for p in answer["batch_predictions"]), answer
    return [p["output"] for p in answer["batch_predictions"]]


def infer(gateway, name, tensor, datatype):
    """Returns the outputs of a batch over the Open Inference Protocol, by name."""
    body = {"inputs": [{"name": tensor[0], "datatype": datatype, "shape": list(np.shape(tensor[1])), "data": np.ravel(tensor[1]).tolist()}]}
    status, answer = post(gateway, name, body, path="v2/models/{}/infer")
    assert status == 200, answer
    return {o["name"]: np.reshape(o["data"], o["shape"]) for o in answer["outputs"]}


def module(models, name):
    """Imports the training script of a model, which knows its data."""
    spec = importlib.util.spec_from_file_location(f"train_{name}", models / name / "train.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def without_nan(rows):
    return [[None if np.isnan(v) else v for v in row] for row in np.asarray(rows).tolist()]


def test_xgboost_with_missing_values(gateway, models):
    x = module(models, "xgboost").data()[0][400:460]
    assert np.isnan(x).any()
    expected = xgboost.Booster(model_file=models / "xgboost" / "model.json").inplace_predict(x)
    assert len(set(expected.tolist())) > 10
    np.testing.assert_array_equal(np.float32(outputs(gateway, "xgboost", without_nan(x))), expected)
    one = [post(gateway, "xgboost", {"input": row})[1]["output"] for row in without_nan(x[:5])]
    np.testing.assert_array_equal(np.float32(one), expected[:5])
    raw = [post(gateway, "xgboost", row.tobytes(), "application/octet-stream")[1]["output"] for row in x[:5]]
    np.testing.assert_array_equal(np.float32(raw), expected[:5])
    full = np.nan_to_num(x[:5])
    expected = xgboost.Booster(model_file=models / "xgboost" / "model.json").inplace_predict(full)
    np.testing.assert_array_equal(np.float32(infer(gateway, "xgboost", ("input", full), "FP32")["output"]), expected)


def test_lightgbm(gateway, models):
    x = load_diabetes(return_X_y=True)[0][300:360]
    expected = lightgbm.Booster(model_file=models / "lightgbm" / "model.txt").predict(x)
    np.testing.assert_array_equal(outputs(gateway, "lightgbm", x.tolist()), expected)
    np.testing.assert_array_equal(infer(gateway, "lightgbm", ("input", x), "FP64")["output"], expected)


def test_onnx_with_two_outputs(gateway, models):
    x = load_digits(return_X_y=True)[0][1200:1260].astype(np.float32)
    label, probabilities = onnxruntime.InferenceSession(models / "onnx" / "model.onnx").run(["label", "probabilities"], {"x": x})
    answers = outputs(gateway, "onnx", x.tolist())
    assert [a["label"] for a in answers] == label.tolist()
    np.testing.assert_allclose([a["probabilities"] for a in answers], probabilities, rtol=1e-5, atol=1e-7)  # sums differ with the batch
    answers = infer(gateway, "onnx", ("x", x), "FP32")
    assert answers["label"].tolist() == label.tolist()
    np.testing.assert_allclose(answers["probabilities"], probabilities, rtol=1e-5, atol=1e-7)


def test_text_in_and_out(gateway, models):
    texts, classes = module(models, "text").sentences(11, 40)
    expected = joblib.load(models / "text" / "model.joblib").predict(texts).tolist()
    assert expected == classes  # it learned something, so equal answers mean something
    assert outputs(gateway, "text", texts) == expected
    assert post(gateway, "text", texts[0].encode(), "text/plain; charset=utf-8")[1]["output"] == expected[0]
    assert infer(gateway, "text", ("input", np.array(texts)), "BYTES")["output"].tolist() == expected
    assert post(gateway, "text", b"caf\xe9", "text/plain")[0] == 400
    answer = post(gateway, "text", {"input": texts[0]})[1]
    assert post(gateway, "text", {"query_id": answer["query_id"], "label": "pos"}, path="{}/feedback")[0] == 200


def picture(seed, form, size=(32, 24)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue(), pixels


def test_pictures_as_files(gateway):
    for form in ("PNG", "BMP"):  # forms without loss
        data, pixels = picture(3, form)
        for status, answer in (
            post(gateway, "image", data, "application/octet-stream"),
            post(gateway, "image", {"input": {"b64": base64.b64encode(data).decode()}}),
        ):
            assert status == 200, answer
            assert answer["output"]["size"] == [32, 24]
            np.testing.assert_allclose(answer["output"]["mean"], pixels.mean((0, 1)), rtol=1e-4)


def test_a_file_that_is_no_picture_fails_alone(gateway):
    """160 files at once, 10 of them damaged: exactly their senders get 400, with the decoder's words."""

    def one(i):
        data = picture(i, "PNG")[0]
        return post(gateway, "image", data[: 40 if i % 16 == 5 else None], "application/octet-stream")

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(one, range(160)))
    for i, (status, answer) in enumerate(answers):
        if i % 16 == 5:
            assert (status, answer["code"]) == (400, "invalid_input") and "not an image" in answer["cause"], answer
        else:
            assert status == 200, answer


def test_rows_of_a_frame(gateway, models):
    frame, _ = module(models, "rows").rows(11, 40)
    expected = joblib.load(models / "rows" / "model.joblib").predict(frame)
    split = json.loads(frame.to_json(orient="split"))
    status, answer = post(gateway, "rows", {"dataframe_split": split})
    assert status == 200, answer
    np.testing.assert_allclose([p["output"] for p in answer["batch_predictions"]], expected)
    np.testing.assert_allclose(outputs(gateway, "rows", json.loads(frame.to_json(orient="records")), "dataframe_records"), expected)
    np.testing.assert_allclose(outputs(gateway, "rows", split["data"]), expected)
    status, answer = post(gateway, "rows", frame[["city", "age", "visits"]].to_csv(index=False).encode(), "text/csv")
    assert status == 200, answer
    np.testing.assert_allclose([p["output"] for p in answer["batch_predictions"]], expected)
    status, answer = post(gateway, "rows", {"input": {"age": 4, "visits": 2, "town": "Lyon"}})
    assert status == 400 and "town" in answer["cause"]


def test_twenty_callers_wait_together(gateway, record_property):
    """Twenty callers of a model that waits 100 ms for each: all get their answers from one replica."""

    def one(i):
        status, answer = post(gateway, "waiting", {"input": i})
        assert (status, answer.get("output")) == (200, 2 * i), answer

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(one, range(20)))  # the first queries open the connections and start the loop
        began = time.monotonic()
        list(pool.map(one, range(100, 120)))
        record_property("seconds for 20 callers", round(time.monotonic() - began, 3))


@pytest.mark.parametrize("accept", ["text/event-stream", "application/jsonl"])
def test_a_stream_of_words(gateway, accept):
    status, answer = post(gateway, "words", {"input": "one zwei trois 四"}, Accept=accept)
    assert status == 200
    lines = [line.removeprefix("data: ") for line in answer.decode().splitlines() if line and not line.startswith(("event:", "id:", ":"))]
    found = [json.loads(line).get("output") for line in lines]
    assert [word for word in found if word is not None] == "one zwei trois 四".split(), answer
