"""Triton's client over REST."""

import asyncio

import numpy as np
import pytest
import requests
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tensors import EVERY, FOUR

works = lambda feature: pytest.mark.works("tritonclient.http, Triton's client over REST", feature)  # noqa: E731
refused = lambda feature: pytest.mark.refused("tritonclient.http, Triton's client over REST", feature)  # noqa: E731


@pytest.fixture
def client(address, seconds):
    with triton.InferenceServerClient(address, network_timeout=seconds, connection_timeout=seconds, concurrency=4) as c:
        yield c


def tensor(name, data, datatype="FP32", binary=True, module=triton):
    t = module.InferInput(name, list(data.shape), datatype)
    t.set_data_from_numpy(data, binary_data=binary)
    return t


def fails(status, text, call):
    with pytest.raises(InferenceServerException) as e:
        call()
    assert e.value.status() == str(status) and text in e.value.message(), (e.value.status(), e.value.message())


@works("live, ready, metadata and configuration")
def test_metadata(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("numbers") and client.is_model_ready("numbers", "1")
    assert client.get_server_metadata()["name"] == "xebec"
    assert client.get_model_metadata("numbers")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert client.get_model_config("numbers")["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]


@works("functions as models")
def test_functions(client):
    r = client.infer("answer", [tensor("x", FOUR)])
    facts = r.get_response()["parameters"]
    assert (r.as_numpy("y") == FOUR).all() and facts["models"] == "numbers@1" and facts["default"] is False and facts["query_id"] > 0, facts
    facts = client.infer("safe", [tensor("x", FOUR)]).get_response()["parameters"]
    assert facts["default"] is True and facts["default_explanation"], facts


@works("all 13 datatypes, binary and as JSON")
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_datatypes(client, binary_in, binary_out):
    # The client cannot write FP16 as JSON.
    inputs = [tensor(n, data, datatype, binary_in or datatype == "FP16") for n, (datatype, data) in EVERY.items()]
    outputs = [triton.InferRequestedOutput(n, binary_data=binary_out or datatype == "FP16") for n, (datatype, _) in EVERY.items()]
    r = client.infer("every", inputs, outputs=outputs)
    for n, (datatype, data) in EVERY.items():
        got = r.as_numpy(n)
        if datatype == "BYTES":
            got = np.array([[x.encode() if isinstance(x, str) else x for x in row] for row in got], dtype=object)
            data = np.array([[x.encode() for x in row] for row in data], dtype=object)
        assert got.tolist() == data.tolist(), n


@works("versions, request ids, parameters and headers")
def test_options(client):
    for model, version in (("numbers", "1"), ("numbers@1", "")):
        r = client.infer(model, [tensor("x", FOUR)], model_version=version, request_id="r7", headers={"Xebec-Slo-Ms": "60000"}, timeout=60_000_000)
        assert r.get_response()["id"] == "r7" and r.get_response()["model_version"] == "1"
    assert (client.infer("answer", [tensor("x", FOUR)], parameters={"context": "ann", "mine": 7}, priority=1).as_numpy("y") == FOUR).all()


@works("sequences: the id is a context")
def test_sequences(client):
    for i in range(3):
        r = client.infer("answer", [tensor("x", FOUR)], sequence_id=77, sequence_start=i == 0, sequence_end=i == 2)
        assert (r.as_numpy("y") == FOUR).all()


@works("compressed requests and responses")
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client, algorithm):
    r = client.infer("numbers", [tensor("x", FOUR)], request_compression_algorithm=algorithm, response_compression_algorithm=algorithm)
    assert (r.as_numpy("y") == FOUR).all()


@works("classification")
def test_classification(client):
    r = client.infer("numbers", [tensor("x", FOUR)], outputs=[triton.InferRequestedOutput("y", class_count=1)])
    assert [text.endswith((b":3", b":3")) for row in r.as_numpy("y") for text in np.atleast_1d(row)] == [True, True], r.as_numpy("y")


@works("async_infer, and the aio client")
def test_async(client):
    calls = [client.async_infer("numbers", [tensor("x", FOUR + i)]) for i in range(4)]
    for i, call in enumerate(calls):
        assert (call.get_result().as_numpy("y") == FOUR + i).all()


@works("async_infer, and the aio client")
def test_aio(address):
    async def run():
        async with triton_aio.InferenceServerClient(address) as c:
            assert await c.is_server_ready()
            answers = await asyncio.gather(*(c.infer("numbers", [tensor("x", FOUR + i, module=triton_aio)]) for i in range(20)))
            assert all((a.as_numpy("y") == FOUR + i).all() for i, a in enumerate(answers))

    asyncio.run(run())


@works("generated request bodies (generate_request_body, parse_response_body)")
def test_bodies(client, address):
    body, length = triton.InferenceServerClient.generate_request_body([tensor("x", FOUR)])
    r = requests.post(f"http://{address}/v2/models/numbers/infer", data=body, headers={"Inference-Header-Content-Length": str(length)} if length else {})
    assert r.status_code == 200, r.text
    header = r.headers.get("Inference-Header-Content-Length")
    parsed = triton.InferenceServerClient.parse_response_body(r.content, header_length=int(header) if header else None)
    assert (parsed.as_numpy("y") == FOUR).all()


@works("statistics")
def test_statistics(client):
    client.infer("numbers", [tensor("x", FOUR)])
    assert client.get_inference_statistics("numbers", "1")["model_stats"][0]["inference_count"] >= 2
    assert len(client.get_inference_statistics()["model_stats"]) > 9


@works("repository index")
def test_index(client):
    index = {(m["name"], m["version"]): m["state"] for m in client.get_model_repository_index()}
    assert index["numbers", "1"] == "READY" and index["answer", ""] == "READY", index


@works("errors: name, shape, datatype, values")
def test_errors(client):
    fails(404, "nobody", lambda: client.infer("nobody", [tensor("x", FOUR)]))
    fails(404, "7", lambda: client.infer("numbers", [tensor("x", FOUR)], model_version="7"))
    fails(400, "x", lambda: client.infer("numbers", [tensor("x", FOUR[:, :3].copy())]))
    fails(400, "INT32", lambda: client.infer("numbers", [tensor("x", FOUR.astype(np.int32), "INT32")]))
    fails(400, "slo_ms", lambda: client.infer("answer", [tensor("x", FOUR)], parameters={"slo_ms": -1}))
    fails(502, "failed", lambda: client.infer("broken", [tensor("x", FOUR)]))


@refused("load and unload, without --model-control")
def test_control(client):
    fails(501, "--model-control", lambda: client.load_model("numbers"))
    fails(501, "--model-control", lambda: client.unload_model("numbers"))


@refused("system and CUDA shared memory")
def test_shared_memory(client):
    fails(501, "shared memory", lambda: client.register_system_shared_memory("a", "/b", 1))
    fails(501, "shared memory", lambda: client.get_system_shared_memory_status())
    fails(501, "shared memory", lambda: client.get_cuda_shared_memory_status())


@refused("tensors in shared memory, whatever their name, size and offset")
def test_regions(client):
    for region, size, offset in (("r", 32, 0), ("r", 2**62, 2**62), ("triton_python_backend_shm_region_x", 32, 0), ("x y", 32, 0), ("", 0, 0)):
        placed = triton.InferInput("x", [2, 4], "FP32")
        placed.set_shared_memory(region, size, offset)
        output = triton.InferRequestedOutput("y")
        output.set_shared_memory(region, size, offset)
        fails(501, "shared memory", lambda: client.infer("numbers", [placed]))
        fails(501, "shared memory", lambda: client.infer("numbers", [tensor("x", FOUR)], outputs=[output]))
        fails(501, "shared memory", lambda: client.register_system_shared_memory(region or "none", "/" + region, size, offset=offset))
        fails(501, "shared memory", lambda: client.unregister_system_shared_memory(region))
    assert (client.infer("numbers", [tensor("x", FOUR)]).as_numpy("y") == FOUR).all()


@refused("trace and log settings")
def test_settings(client):
    fails(501, "", lambda: client.get_trace_settings())
    fails(501, "", lambda: client.update_log_settings({"log_verbose_level": 1}))
