"""Queries a gateway through the public client of the Open Inference Protocol: oip.py HOST:PORT HELDOUT.json

Prints, as JSON, each model's accuracy on the held-out digits in each form of request, and fails if another feature of the client
does not work.
"""

import json
import sys

import numpy
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

MODELS = ("digits-svm", "digits-forest", "digits-logreg")


def infer(client, model, pixels, binary_in, binary_out, **more):
    tensor = http.InferInput("input", list(pixels.shape), "FP32")
    tensor.set_data_from_numpy(pixels, binary_data=binary_in)
    wanted = [http.InferRequestedOutput("output", binary_data=binary_out)]
    return client.infer(model, [tensor], outputs=wanted, **more)


def metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    server = client.get_server_metadata()
    assert server["name"] == "xebec" and "binary_tensor_data" in server["extensions"], server
    for model in MODELS:
        assert client.is_model_ready(model) and client.is_model_ready(model, "1")
        found = client.get_model_metadata(model)
        assert found["name"] == model and found["versions"] == [], found  # a function of the same name hides the model
        assert found["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 64]}], found
        assert found["outputs"] == [{"name": "output", "datatype": "INT64", "shape": [-1]}], found


def strings(client):
    """Strings, which the client sends as BYTES."""
    words = numpy.array(["one", "", "dritter \u00e4\u20ac"], dtype=object)
    for binary in (True, False):
        tensor = http.InferInput("input", [len(words)], "BYTES")
        tensor.set_data_from_numpy(words, binary_data=binary)
        answer = client.infer("echo", [tensor], outputs=[http.InferRequestedOutput("output", binary_data=binary)], request_id="words")
        assert answer.get_response()["id"] == "words", answer.get_response()
        echoed = [w.decode() if isinstance(w, bytes) else w for w in answer.as_numpy("output")]
        assert echoed == list(words), echoed


def failures(client, pixels):
    for what, call in {
        "no such model": lambda: infer(client, "nobody", pixels, True, True),
        "no such version": lambda: infer(client, "digits-svm", pixels, True, True, model_version="7"),
        "wrong shape": lambda: infer(client, "digits-svm", pixels[:, :63].copy(), True, True),
    }.items():
        try:
            call()
        except InferenceServerException as e:
            assert e.message(), what
        else:
            raise AssertionError(f"{what}: expected an error")


def main():
    with open(sys.argv[2]) as f:
        digits = json.load(f)
    pixels, labels = numpy.array(digits["pixels"], dtype=numpy.float32), numpy.array(digits["labels"])
    client = http.InferenceServerClient(sys.argv[1], network_timeout=60, connection_timeout=60)
    metadata(client)
    right = {}
    for model in MODELS:
        for binary_in in (True, False):
            for binary_out in (True, False):
                answer = infer(client, model, pixels, binary_in, binary_out)
                output = answer.as_numpy("output")
                assert output.dtype == numpy.int64 and output.shape == labels.shape, (output.dtype, output.shape)
                right[f"{model} {'binary' if binary_in else 'JSON'} to {'binary' if binary_out else 'JSON'}"] = float((output == labels).mean())
    strings(client)
    failures(client, pixels)
    json.dump(right, sys.stdout)


if __name__ == "__main__":
    main()
