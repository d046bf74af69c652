"""TensorFlow Serving's REST API, by requests."""

import base64
import math

import pytest
import requests

works = lambda feature: pytest.mark.works("requests, as TensorFlow Serving's REST API is called", feature)  # noqa: E731
refused = lambda feature: pytest.mark.refused("requests, as TensorFlow Serving's REST API is called", feature)  # noqa: E731


@pytest.fixture
def post(address, seconds):
    with requests.Session() as session:
        yield lambda path, body: session.post(f"http://{address}/v1/models/{path}", data=body, timeout=seconds)


@works("predict with rows and with columns")
def test_predict(post):
    assert post("numbers:predict", '{"instances": [[1, 2, 3, 4], [5, 6, 7, 8]]}').json() == {"predictions": [[1, 2, 3, 4], [5, 6, 7, 8]]}
    assert post("answer:predict", '{"inputs": [[1, 2, 3, 4]]}').json() == {"outputs": [[1, 2, 3, 4]]}
    two = '{"scores": [0.25, 0.75], "classes": ["no", "yes"]}'
    assert post("classes:predict", f'{{"instances": [{two}]}}').json() == {"predictions": [{"scores": [0.25, 0.75], "classes": ["no", "yes"]}]}


@works("versions and status")
def test_versions(post, address, seconds):
    assert post("numbers/versions/1:predict", '{"instances": [[1, 2, 3, 4]]}').status_code == 200
    assert post("numbers/versions/9:predict", '{"instances": [[1, 2, 3, 4]]}').status_code == 404
    status = requests.get(f"http://{address}/v1/models/numbers", timeout=seconds).json()["model_version_status"]
    assert [(v["version"], v["state"], v["status"]["error_code"]) for v in status] == [("1", "AVAILABLE", "OK")]


@works("metadata")
def test_metadata(address, seconds):
    m = requests.get(f"http://{address}/v1/models/numbers/metadata", timeout=seconds).json()
    assert m["model_spec"]["name"] == "numbers"
    inputs = m["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]
    assert inputs["x"]["dtype"] == "DT_FLOAT", inputs


@works("classify and regress")
def test_examples(post):
    body = '{"examples": [{"scores": [0.25, 0.75], "classes": ["no", "yes"]}]}'
    assert post("classes:classify", body).json() == {"result": [[["no", 0.25], ["yes", 0.75]]]}
    assert post("price:regress", '{"context": {"rooms": 3}, "examples": [{}, {}]}').json() == {"result": [3, 3]}


@works("b64, NaN and Infinity")
def test_values(post):
    coded = base64.b64encode("ä".encode()).decode()
    r = post("classes:predict", f'{{"instances": [{{"scores": [NaN, -Infinity], "classes": [{{"b64": "{coded}"}}, "x"]}}]}}').json()["predictions"][0]
    assert math.isnan(r["scores"][0]) and r["scores"][1] == -math.inf and r["classes"] == ["ä", "x"], r


@works("facts of a function in headers, and its feedback")
def test_feedback(post, address, seconds):
    r = post("answer:predict", '{"instances": [[1, 2, 3, 4]]}')
    fed = requests.post(f"http://{address}/answer/feedback", json={"query_id": int(r.headers["Xebec-Query-Id"]), "correct": True}, timeout=seconds)
    assert r.headers["Xebec-Models"] == "numbers@1" and fed.status_code == 200, fed.text
    assert post("safe:predict", '{"instances": [[1, 2, 3, 4]]}').headers["Xebec-Default"]


@works("errors")
def test_errors(post):
    r = post("nobody:predict", '{"instances": [1]}')
    assert r.status_code == 404 and r.json()["error"].startswith("Servable not found for request: Latest(nobody)"), r.text
    for body in ("", "{", '{"instances": []}', '{"instances": [[1, 2]]}', '{"instances": [["a", 2, 3, 4]]}', '{"instances": [[1,2,3,4]], "inputs": []}'):
        r = post("numbers:predict", body)
        assert r.status_code == 400 and r.json()["error"], (body, r.text)


@refused("other signatures; explain")
def test_refused(post):
    assert post("numbers:predict", '{"signature_name": "other", "instances": [[1, 2, 3, 4]]}').status_code == 400
    r = post("numbers:explain", '{"instances": [[1, 2, 3, 4]]}')
    assert r.status_code == 501 and "explain" in r.json()["error"], r.text
