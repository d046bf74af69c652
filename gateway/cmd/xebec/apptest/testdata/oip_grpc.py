"""Calls a gateway through the public gRPC client of the Open Inference Protocol: oip_grpc.py GRPC-ADDRESS FUNCTION-ADDRESS

Fails if a feature of the client does not work: synchronous, asynchronous and streamed calls. The gateway has the function and model "echo4" (four
floats), the function "down" with the default -1 of a model that fails, and the model "words" that answers in streams.
"""

import asyncio
import queue
import sys

import grpc
import numpy
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

FOUR = numpy.array([[1, 2, 3, 4], [5, 6, 7, 8.5]], dtype=numpy.float32)


def tensor(module, data, datatype="FP32"):
    t = module.InferInput("input", list(data.shape), datatype)
    t.set_data_from_numpy(data)
    return t


def fails(code, text, call):
    try:
        call()
    except InferenceServerException as e:
        assert code in str(e.status()) and text in e.message(), (e.status(), e.message())
    else:
        raise AssertionError(f"expected {code}")


def synchronous(address):
    with triton.InferenceServerClient(address) as c:
        assert c.is_server_live() and c.is_server_ready() and c.is_model_ready("echo4") and c.is_model_ready("echo4", "1")
        assert c.get_server_metadata().name == "xebec"
        m = c.get_model_metadata("echo4", as_json=True)
        assert m["inputs"] == [{"name": "input", "datatype": "FP32", "shape": ["-1", "4"]}], m
        config = c.get_model_config("echo4").config
        assert config.name == "echo4" and config.input[0].data_type == 11, config
        assert c.get_model_config("words").config.model_transaction_policy.decoupled
        index = {(i.name, i.version): i.state for i in c.get_model_repository_index().models}
        assert index[("echo4", "")] == "READY" and index[("words", "1")] == "READY", index
        for name, version in (("echo4", ""), ("echo4", "1"), ("echo4@1", "")):
            for compression in (None, "gzip", "deflate"):
                a = c.infer(name, [tensor(triton, FOUR)], model_version=version, request_id="7", outputs=[triton.InferRequestedOutput("output")], compression_algorithm=compression, client_timeout=60)
                assert (a.as_numpy("output") == FOUR).all(), a.as_numpy("output")
                r = a.get_response()
                assert r.id == "7" and ("query_id" in r.parameters) == (version == "" and "@" not in name), r
        answered = queue.Queue()
        c.async_infer("echo4", [tensor(triton, FOUR)], lambda result, error: answered.put((result, error)), client_timeout=60)
        result, error = answered.get(timeout=60)
        assert error is None and (result.as_numpy("output") == FOUR).all(), error
        r = c.infer("down", [tensor(triton, FOUR[:1])], client_timeout=60).get_response()
        assert r.parameters["default"].bool_param and r.parameters["default_explanation"].string_param, r
        r = c.infer("echo4", [tensor(triton, FOUR[:1])], parameters={"context": "me", "slo_ms": 60000, "mine": "x"}, timeout=60_000_000, client_timeout=60, headers={"xebec-salt": "s"})
        assert (r.as_numpy("output") == FOUR[:1]).all()
        assert c.get_inference_statistics("echo4", "1").model_stats[0].inference_count > 0
        fails("NOT_FOUND", "nobody", lambda: c.infer("nobody", [tensor(triton, FOUR)]))
        fails("INVALID_ARGUMENT", "[2, 3]", lambda: c.infer("echo4", [tensor(triton, FOUR[:, :3].copy())]))
        fails("INVALID_ARGUMENT", "slo_ms", lambda: c.infer("echo4", [tensor(triton, FOUR)], parameters={"slo_ms": -1}))
        fails("UNIMPLEMENTED", "--model-control", lambda: c.load_model("echo4"))
        fails("UNIMPLEMENTED", "parameters.config", lambda: c.load_model("echo4", config="{}"))
        fails("UNIMPLEMENTED", "shared memory", lambda: c.register_system_shared_memory("a", "/b", 1))
        fails("UNIMPLEMENTED", "ModelStreamInfer", lambda: c.infer("words", [words("3")]))


def words(text):
    t = triton.InferInput("input", [1], "BYTES")
    t.set_data_from_numpy(numpy.array([text.encode()], dtype=object))
    return t


def text_of(result):
    return result.as_numpy("output")[0].decode()


def streamed(address):
    """Two streams and ordinary requests share a stream of calls; the final response is empty."""
    answers = queue.Queue()
    with triton.InferenceServerClient(address) as c:
        c.start_stream(lambda result, error: answers.put((result, error)))
        for id in ("a", "b"):
            c.async_stream_infer("words", [words("20")], request_id=id, enable_empty_final_response=True)
        for i in range(10):
            c.async_stream_infer("echo4", [tensor(triton, FOUR + i)], request_id=str(i))
        c.async_stream_infer("nobody", [tensor(triton, FOUR)], request_id="none")
        got, plain, finals, errors = {"a": [], "b": []}, [], 0, 0
        while finals < 2 or len(plain) < 10 or errors < 1:
            result, error = answers.get(timeout=60)
            if error is not None:
                assert "nobody" in error.message(), error
                errors += 1
                continue
            r = result.get_response()
            if r.id in got and r.parameters["triton_final_response"].bool_param:
                assert len(r.outputs) == 0
                finals += 1
            elif r.id in got:
                got[r.id].append(text_of(result))
            else:
                plain.append((r.id, result.as_numpy("output")))
        assert got["a"] == got["b"] == [f"w{i}" for i in range(20)], got
        assert [id for id, _ in plain] == [str(i) for i in range(10)], plain  # in the order of the requests
        assert all((out == FOUR + i).all() for i, (_, out) in enumerate(plain))
        c.async_stream_infer("words", [words("2 refuse")], request_id="r")
        assert [text_of(answers.get(timeout=60)[0]) for _ in range(2)] == ["w0", "w1"]
        _, error = answers.get(timeout=60)
        assert "no further" in error.message(), error
        c.stop_stream()
        c.start_stream(lambda result, error: answers.put((result, error)))
        c.async_stream_infer("words", [words("forever")], request_id="f")
        assert answers.get(timeout=60)[1] is None
        c.stop_stream(cancel_requests=True)


async def asynchronous(address):
    async with triton_aio.InferenceServerClient(address) as c:
        assert await c.is_server_ready()
        answers = await asyncio.gather(*(c.infer("echo4", [tensor(triton_aio, FOUR + i)], client_timeout=60) for i in range(50)))
        assert all((a.as_numpy("output") == FOUR + i).all() for i, a in enumerate(answers))

        async def requests():
            for i in range(5):
                yield {"model_name": "echo4", "inputs": [tensor(triton_aio, FOUR + i)], "request_id": str(i)}
            yield {"model_name": "words", "inputs": [words("3")], "request_id": "w"}

        seen = []
        async for result, error in c.stream_infer(requests()):
            assert error is None, error
            seen.append(result.get_response().id)
        assert [id for id in seen if id != "w"] == ["0", "1", "2", "3", "4"] and seen.count("w") == 3, seen


def refused(functions, address):
    """A call to the function port fails at once, and says where gRPC is. A client that retries UNAVAILABLE does not retry it."""
    policy = '{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "5s", "maxBackoff": "5s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}'
    with grpc.insecure_channel(functions, options=[("grpc.service_config", policy)]) as channel:
        for payload in (b"", bytes(1 << 20)):
            try:
                channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(payload, timeout=60)
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNIMPLEMENTED and address in e.details(), (e.code(), e.details())
            else:
                raise AssertionError("the function port has answered a call of gRPC")


def main():
    address, functions = sys.argv[1:]
    synchronous(address)
    streamed(address)
    asyncio.run(asynchronous(address))
    refused(functions, address)


if __name__ == "__main__":
    main()
