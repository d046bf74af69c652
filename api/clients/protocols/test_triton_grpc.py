"""Triton's client over gRPC."""

import asyncio
import queue

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tensors import EVERY, FOUR

works = lambda feature: pytest.mark.works("tritonclient.grpc, Triton's client over gRPC", feature)  # noqa: E731
refused = lambda feature: pytest.mark.refused("tritonclient.grpc, Triton's client over gRPC", feature)  # noqa: E731


@pytest.fixture
def client(grpc_address):
    with triton.InferenceServerClient(grpc_address) as c:
        yield c


def tensor(name, data, datatype="FP32", module=triton):
    t = module.InferInput(name, list(data.shape), datatype)
    t.set_data_from_numpy(data)
    return t


def text(value, module=triton):
    return tensor("text", np.array([value.encode()], dtype=object), "BYTES", module)


def fails(code, words, call):
    with pytest.raises(InferenceServerException) as e:
        call()
    assert code in str(e.value.status()) and words in e.value.message(), (e.value.status(), e.value.message())


@works("live, ready, metadata and configuration")
def test_metadata(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("numbers") and client.is_model_ready("numbers", "1")
    assert client.get_server_metadata().name == "xebec"
    assert client.get_model_metadata("numbers", as_json=True)["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "4"]}]
    assert client.get_model_config("words").config.model_transaction_policy.decoupled


@works("functions as models")
def test_functions(client, seconds):
    r = client.infer("answer", [tensor("x", FOUR)], client_timeout=seconds)
    assert (r.as_numpy("y") == FOUR).all() and r.get_response().parameters["query_id"].int64_param > 0
    p = client.infer("safe", [tensor("x", FOUR)], client_timeout=seconds).get_response().parameters
    assert p["default"].bool_param and p["default_explanation"].string_param, p


@works("all 13 datatypes")
def test_datatypes(client, seconds):
    r = client.infer("every", [tensor(n, data, datatype) for n, (datatype, data) in EVERY.items()], client_timeout=seconds)
    for n, (datatype, data) in EVERY.items():
        want = np.array([[x.encode() for x in row] for row in data], dtype=object) if datatype == "BYTES" else data
        assert r.as_numpy(n).tolist() == want.tolist(), n


@works("classification")
def test_classification(client, seconds):
    r = client.infer("numbers", [tensor("x", FOUR)], outputs=[triton.InferRequestedOutput("y", class_count=2)], client_timeout=seconds)
    assert r.as_numpy("y").tolist() == [[b"4:3", b"3:2"], [b"8.5:3", b"7:2"]]


@works("versions, request ids, parameters and metadata")
def test_options(client, seconds):
    for model, version in (("numbers", "1"), ("numbers@1", "")):
        r = client.infer(model, [tensor("x", FOUR)], model_version=version, request_id="r7", headers={"xebec-slo-ms": "60000"}, client_timeout=seconds)
        assert r.get_response().id == "r7" and r.get_response().model_version == "1"
    r = client.infer("answer", [tensor("x", FOUR)], parameters={"context": "ann", "mine": 7}, priority=1, sequence_id=77, timeout=60_000_000)
    assert (r.as_numpy("y") == FOUR).all()


@works("compression")
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(client, algorithm, seconds):
    assert (client.infer("numbers", [tensor("x", FOUR)], compression_algorithm=algorithm, client_timeout=seconds).as_numpy("y") == FOUR).all()


@works("async_infer, and the aio client")
def test_async(client, seconds):
    answers = queue.Queue()
    client.async_infer("numbers", [tensor("x", FOUR)], lambda result, error: answers.put((result, error)), client_timeout=seconds)
    result, error = answers.get(timeout=seconds)
    assert error is None and (result.as_numpy("y") == FOUR).all()


@works("async_infer, and the aio client")
def test_aio(grpc_address, seconds):
    async def run():
        async with triton_aio.InferenceServerClient(grpc_address) as c:
            assert await c.is_server_ready()
            answers = await asyncio.gather(*(c.infer("numbers", [tensor("x", FOUR + i, module=triton_aio)], client_timeout=seconds) for i in range(20)))
            assert all((a.as_numpy("y") == FOUR + i).all() for i, a in enumerate(answers))

    asyncio.run(run())


@works("streams: requests in their order, models that stream, errors within")
def test_stream(client, seconds):
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for i in range(5):
        client.async_stream_infer("numbers", [tensor("x", FOUR + i)], request_id=str(i))
    for i in range(5):
        result, error = answers.get(timeout=seconds)
        assert error is None and result.get_response().id == str(i) and (result.as_numpy("y") == FOUR + i).all()
    client.async_stream_infer("words", [text("a b c")], request_id="w", enable_empty_final_response=True)
    heard = []
    while True:
        result, error = answers.get(timeout=seconds)
        assert error is None, error
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
        heard.append(result.as_numpy("word")[0])
    assert heard == [b"a", b"b", b"c"]
    client.async_stream_infer("nobody", [tensor("x", FOUR)])
    result, error = answers.get(timeout=seconds)
    assert "nobody" in error.message()
    client.async_stream_infer("numbers", [tensor("x", FOUR)])
    assert answers.get(timeout=seconds)[1] is None
    client.stop_stream()


@works("streams of the aio client")
def test_aio_stream(grpc_address):
    async def run():
        async def requests():
            for i in range(3):
                yield {"model_name": "numbers", "inputs": [tensor("x", FOUR + i, module=triton_aio)], "request_id": str(i)}

        async with triton_aio.InferenceServerClient(grpc_address) as c:
            seen = []
            async for result, error in c.stream_infer(requests()):
                assert error is None, error
                seen.append(result.get_response().id)
            assert seen == ["0", "1", "2"]

    asyncio.run(run())


@works("statistics and repository index")
def test_statistics(client, seconds):
    client.infer("numbers", [tensor("x", FOUR)], client_timeout=seconds)
    assert client.get_inference_statistics("numbers", "1").model_stats[0].inference_count >= 2
    assert {i.name: i.state for i in client.get_model_repository_index().models}["numbers"] == "READY"


@works("errors: name, shape, values, models that fail")
def test_errors(client):
    fails("NOT_FOUND", "nobody", lambda: client.infer("nobody", [tensor("x", FOUR)]))
    fails("INVALID_ARGUMENT", "[2, 3]", lambda: client.infer("numbers", [tensor("x", FOUR[:, :3].copy())]))
    fails("INVALID_ARGUMENT", "slo_ms", lambda: client.infer("answer", [tensor("x", FOUR)], parameters={"slo_ms": -1}))
    fails("INTERNAL", "failed", lambda: client.infer("broken", [tensor("x", FOUR)]))
    fails("UNIMPLEMENTED", "ModelStreamInfer", lambda: client.infer("words", [text("a")]))


@refused("load and unload, without --model-control")
def test_control(client):
    fails("UNIMPLEMENTED", "--model-control", lambda: client.load_model("numbers"))


@refused("tensors in shared memory, whatever their name, size and offset")
def test_regions(client):
    for region, size, offset in (("r", 32, 0), ("r", 2**62, 2**62), ("triton_python_backend_shm_region_x", 32, 0), ("../x", 32, 0), ("", 0, 0)):
        placed = triton.InferInput("x", [2, 4], "FP32")
        placed.set_shared_memory(region, size, offset)
        output = triton.InferRequestedOutput("y")
        output.set_shared_memory(region, size, offset)
        fails("UNIMPLEMENTED", "shared memory", lambda: client.infer("numbers", [placed]))
        fails("UNIMPLEMENTED", "shared memory", lambda: client.infer("numbers", [tensor("x", FOUR)], outputs=[output]))
        fails("UNIMPLEMENTED", "shared memory", lambda: client.register_system_shared_memory(region or "none", "/" + region, size, offset=offset))
        fails("UNIMPLEMENTED", "shared memory", lambda: client.unregister_system_shared_memory(region))
    assert (client.infer("numbers", [tensor("x", FOUR)]).as_numpy("y") == FOUR).all()


@refused("shared memory, trace and log settings")
def test_unsupported(client):
    fails("UNIMPLEMENTED", "shared memory", lambda: client.register_system_shared_memory("a", "/b", 1))
    fails("UNIMPLEMENTED", "", lambda: client.get_trace_settings())
    fails("UNIMPLEMENTED", "", lambda: client.get_log_settings())
