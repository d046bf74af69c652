"""The demo as `make run` serves it: trained models classify digits sent over HTTP, through every layer."""

import base64
import importlib
import json
import subprocess
import urllib.request

import joblib
import pytest
import train

# A longer deadline than the functions' objective, so that the tests pass on a busy machine.
HEADERS = {"Content-Type": "application/json", "Xebec-Slo-Ms": "60000"}


def predict(gateway, function, body, content_type="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return post(gateway, f"{function}/predict", data, content_type)


def post(gateway, path, data, content_type="application/json"):
    request = urllib.request.Request(f"http://{gateway.functions}/{path}", data, dict(HEADERS, **{"Content-Type": content_type}))
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def held_out():
    _, pixels, _, labels = train.split()
    return pixels, labels


@pytest.mark.parametrize("name", train.CLASSIFIERS)
def test_served_answers_are_the_models(gateway, held_out, name):
    """Each served answer equals the model's own prediction: one by one and as a batch, as JSON and as raw float32."""
    pixels, labels = held_out
    count = 40
    expected = joblib.load(train.MODELS / name / "digits.joblib").predict(pixels[:count]).tolist()
    one_by_one = []
    for row in pixels[:count]:
        answer = predict(gateway, name, {"input": row.tolist()})
        assert answer["default"] is False and answer["models"] == [f"{name}@1"], answer
        one_by_one.append(answer["output"])
    assert one_by_one == expected
    batch = predict(gateway, name, {"input_batch": pixels[:count].tolist()})
    assert [p["output"] for p in batch["batch_predictions"]] == expected
    raw = [predict(gateway, name, row.astype("<f4").tobytes(), "application/octet-stream")["output"] for row in pixels[:5]]
    assert raw == expected[:5]
    assert sum(a == b for a, b in zip(one_by_one, labels)) >= 0.9 * count


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream"])
@pytest.mark.parametrize("body", [b"hello", b"", bytes(range(256)) * 300], ids=["short", "empty", "long"])
def test_echo_gives_back_every_byte(gateway, content_type, body):
    answer = predict(gateway, "echo", body, content_type)
    assert answer["default"] is False
    assert base64.b64decode(answer["output"]["b64"]) == body


def test_noop_takes_any_length(gateway):
    for length in (0, 1, 784, 100_000):
        answer = predict(gateway, "noop", {"input": [1.5] * length})
        assert answer["default"] is False and answer["output"] == 0


def test_the_printed_commands_work(gateway):
    """The commands that try.py prints are the first that a new user runs."""
    try_it = importlib.import_module("try")
    digit = json.loads(try_it.DIGIT.read_text())
    first, *curls = try_it.commands(f"http://{gateway.functions}", digit)
    for line in curls:
        patient = line.replace("curl -s", "curl -sS -H 'Xebec-Slo-Ms: 60000'")
        done = subprocess.run(["bash", "-c", f"{first}\n{patient}"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        if "/feedback" in line:
            assert answer == {"status": "pending"}
            continue
        assert answer["default"] is False, answer
        if "/digits" in line:
            assert answer["output"] == digit["label"]
        if "/echo/" in line:
            assert base64.b64decode(answer["output"]["b64"]) == b"hello"


def test_digits_learns_what_its_models_are_worth(gateway, held_out):
    """All three models take part in each answer. After feedback each model's losses are its own errors on the same digits."""
    pixels, labels = held_out
    count = 60
    wrong = {}
    for name in train.CLASSIFIERS:
        predicted = joblib.load(train.MODELS / name / "digits.joblib").predict(pixels[:count])
        wrong[name] = int((predicted != labels[:count]).sum())
    before = losses(gateway)
    right = 0
    for row, label in zip(pixels[:count], labels[:count].tolist()):
        answer = predict(gateway, "digits", {"input": row.tolist()})
        assert sorted(answer["models"]) == sorted(f"{name}@1" for name in train.CLASSIFIERS), answer
        assert answer["confidence"] >= 0.5 or answer["default"], answer
        right += answer["output"] == label
        feedback = json.dumps({"query_id": answer["query_id"], "label": label})
        for status in ("counted", "duplicate"):
            assert post(gateway, "digits/feedback", feedback.encode())["status"] == status
    assert right >= 0.9 * count
    after = losses(gateway)
    for name in train.CLASSIFIERS:
        assert after[name][0] - before[name][0] == count
        assert after[name][1] - before[name][1] == wrong[name]


def losses(gateway):
    """Returns the number and the sum of the losses of each candidate of `digits`, from the metrics."""
    with urllib.request.urlopen(f"http://{gateway.admin}/metrics", timeout=60) as response:
        text = response.read().decode()
    found = {name: [0.0, 0.0] for name in train.CLASSIFIERS}
    for line in text.splitlines():
        for at, family in enumerate(("xebec_feedback_loss_count", "xebec_feedback_loss_sum")):
            for name in found:
                if line.startswith(f'{family}{{candidate="{name}",function="digits"}}'):
                    found[name][at] = float(line.split()[-1])
    return found
