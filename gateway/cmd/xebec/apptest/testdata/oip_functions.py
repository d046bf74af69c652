"""Uses functions and extensions through Triton's HTTP client: oip_functions.py HOST:PORT TOKEN

Fails if something does not work as the guide says. The gateway has the models scores and hidden, which answer their input, and the functions digit,
with the default -1s, and hidden.
"""

import json
import sys
import urllib.request

import numpy
import tritonclient.http as http
from tritonclient.utils import InferenceServerException


def tensor(rows):
    t = http.InferInput("x", list(rows.shape), "FP32")
    t.set_data_from_numpy(rows)
    return t


def refused(status, call):
    try:
        call()
    except InferenceServerException as e:
        assert str(status) in str(e.status()), (status, e.status(), e.message())
        return e.message()
    raise AssertionError("it was not refused")


def functions(client, address, rows):
    metadata = client.get_model_metadata("digit")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}] and metadata["versions"] == [], metadata
    assert client.is_model_ready("digit")
    answer = client.infer("digit", [tensor(rows)], parameters={"context": "ann", "min_confidence": 0.5, "models": "scores"}, request_id="7", timeout=20_000_000)
    facts = answer.get_response()["parameters"]
    assert (answer.as_numpy("y") == rows).all() and answer.get_response()["id"] == "7", answer.get_response()
    assert facts["default"] is False and facts["models"] == "scores@1" and facts["confidence"] == 1, facts
    for i in range(len(rows)):
        body = json.dumps({"query_id": facts["query_id"] + i, "correct": True, "context": "ann"}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"http://{address}/digit/feedback", body, {"Content-Type": "application/json"})) as given:
            assert given.status in (200, 202), given.status
    for name, version in (("hidden", None), ("hidden@1", "1")):
        response = client.infer(name, [tensor(rows)]).get_response()
        assert response["model_name"] == "hidden" and response.get("model_version") == version, response
        assert ("parameters" in response) == (version is None), response
    refused(400, lambda: client.infer("digit", [tensor(rows)], parameters={"models": "other"}))
    refused(404, lambda: client.infer("digit", [tensor(rows)], model_version="1"))


def forms(client, address, rows):
    for algorithm in (None, "gzip", "deflate"):
        answer = client.infer("digit", [tensor(rows)], request_compression_algorithm=algorithm, response_compression_algorithm=algorithm)
        assert (answer.as_numpy("y") == rows).all(), algorithm
    answer = client.infer("scores", [tensor(rows)], outputs=[http.InferRequestedOutput("y", class_count=2)])
    assert answer.as_numpy("y").tolist() == [[b"3:0", b"2:2"], [b"6:2", b"5:1"]], answer.as_numpy("y")
    request = urllib.request.Request(f"http://{address}/v2/models/scores/infer/", rows.tobytes(), {"Inference-Header-Content-Length": "0"})
    with urllib.request.urlopen(request) as answered:
        body, length = answered.read(), int(answered.headers["Inference-Header-Content-Length"])
    assert body[length:] == rows.tobytes() and json.loads(body[:length])["outputs"][0]["shape"] == [2, 3], body


def extensions(client, token):
    config = client.get_model_config("scores")
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}], config
    statistics = {(m["name"], m["version"]): m for m in client.get_inference_statistics()["model_stats"]}
    used = statistics["scores", "1"]
    assert used["inference_count"] > 0 and used["execution_count"] > 0 and used["inference_stats"]["compute_infer"]["ns"] > 0, used
    assert statistics["digit", ""]["inference_stats"]["success"]["ns"] > 0, statistics
    assert client.get_inference_statistics("scores", "1")["model_stats"][0]["version"] == "1"
    index = {(m["name"], m["version"]): m["state"] for m in client.get_model_repository_index()}
    assert index == {("digit", ""): "READY", ("hidden", ""): "READY", ("hidden", "1"): "READY", ("scores", "1"): "READY"}, index
    for call in (client.get_system_shared_memory_status, client.get_cuda_shared_memory_status, client.get_trace_settings, client.get_log_settings):
        assert "not" in refused(501, call)
    refused(403, lambda: client.load_model("scores"))
    refused(501, lambda: client.load_model("scores", config="{}", headers={"Authorization": f"Bearer {token}"}))
    client.unload_model("scores", headers={"Authorization": f"Bearer {token}"})
    client.load_model("scores", headers={"Authorization": f"Bearer {token}"})
    assert client.is_model_ready("scores")


def main():
    address, token = sys.argv[1:]
    rows = numpy.array([[3, 1, 2], [4, 5, 6]], dtype=numpy.float32)
    client = http.InferenceServerClient(address, network_timeout=60, connection_timeout=60)
    functions(client, address, rows)
    forms(client, address, rows)
    extensions(client, token)


if __name__ == "__main__":
    main()
