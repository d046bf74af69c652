"""KServe's SDK: its first protocol, and the second over REST and gRPC. It cannot share a process with Triton's client: both describe the same messages."""

import asyncio

import grpc
import httpx
import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from kserve.protocol.infer_type import RequestedOutput

from tensors import EVERY, FOUR

works = lambda feature: pytest.mark.works("kserve, KServe's SDK", feature)  # noqa: E731
refused = lambda feature: pytest.mark.refused("kserve, KServe's SDK", feature)  # noqa: E731


def rest(address, protocol, calls):
    async def run():
        async with InferenceRESTClient(RESTConfig(protocol=protocol, timeout=60)) as c:
            return await calls(c, f"http://{address}")

    return asyncio.run(run())


def rpc(grpc_address, calls):
    async def run():
        async with InferenceGRPCClient(grpc_address) as c:
            return await calls(c)

    return asyncio.run(run())


def tensor(name, data, datatype="FP32", binary=True):
    t = InferInput(name, list(data.shape), datatype)
    t.set_data_from_numpy(data, binary_data=binary)
    return t


def request(model, inputs, **more):
    return InferRequest(model_name=model, infer_inputs=inputs, **more)


@works("V1: predict, and whether the server is live and a model is ready")
def test_v1(address):
    async def calls(c, base):
        assert await c.is_server_live(base)
        assert await c.is_model_ready(base, "numbers") and await c.is_model_ready(base, "answer")
        assert await c.infer(base, {"instances": FOUR.tolist()}, model_name="numbers") == {"predictions": FOUR.tolist()}
        assert await c.infer(base, {"instances": FOUR.tolist()}, model_name="answer") == {"predictions": FOUR.tolist()}

    rest(address, "v1", calls)


@works("V1: errors")
def test_v1_errors(address):
    async def calls(c, base):
        with pytest.raises(httpx.HTTPStatusError, match="nobody") as e:
            await c.infer(base, {"instances": [1]}, model_name="nobody")
        assert e.value.response.status_code == 404

    rest(address, "v1", calls)


@refused("V1: explain")
def test_explain(address):
    async def calls(c, base):
        with pytest.raises(httpx.HTTPStatusError, match="explain") as e:
            await c.explain(base, "numbers", {"instances": FOUR.tolist()})
        assert e.value.response.status_code == 501

    rest(address, "v1", calls)


@works("V2 over REST: live, ready, infer in JSON and binary, functions")
@pytest.mark.parametrize("binary", [True, False])
def test_v2(address, binary):
    async def calls(c, base):
        assert await c.is_server_live(base) and await c.is_server_ready(base) and await c.is_model_ready(base, "numbers")
        for model in ("numbers", "answer"):
            wanted = [RequestedOutput("y", parameters={"binary_data": binary})]
            r = await c.infer(base, request(model, [tensor("x", FOUR, binary=binary)], request_id="r7", request_outputs=wanted), model_name=model)
            assert (r.outputs[0].as_numpy() == FOUR).all() and r.id == "r7"

    rest(address, "v2", calls)


@works("V2 over REST: errors")
def test_v2_errors(address):
    async def calls(c, base):
        with pytest.raises(httpx.HTTPStatusError, match="nobody"):
            await c.infer(base, request("nobody", [tensor("x", FOUR)]), model_name="nobody")

    rest(address, "v2", calls)


def same(outputs):
    assert {o.name for o in outputs} == set(EVERY)
    for o in outputs:
        datatype, want = EVERY[o.name]
        got = o.as_numpy()
        if datatype == "BYTES":
            want = np.array([[x.encode() for x in row] for row in want], dtype=object)
            got = np.array([[x.encode() if isinstance(x, str) else x for x in row] for row in got.reshape(want.shape)], dtype=object)
        assert got.tolist() == want.tolist(), o.name


@works("V2 over REST: all 13 datatypes")
def test_v2_datatypes(address):
    async def calls(c, base):
        r = await c.infer(base, request("every", [tensor(n, data, datatype) for n, (datatype, data) in EVERY.items()]), model_name="every")
        same(r.outputs)

    rest(address, "v2", calls)


@works("V2 over gRPC: live, ready, infer, functions, all 13 datatypes")
def test_grpc(grpc_address):
    async def calls(c):
        assert await c.is_server_live() and await c.is_server_ready() and await c.is_model_ready("numbers")
        r = await c.infer(request("answer", [tensor("x", FOUR)], request_id="r7"))
        assert (r.outputs[0].as_numpy() == FOUR).all() and r.id == "r7"
        r = await c.infer(request("every", [tensor(n, data, datatype) for n, (datatype, data) in EVERY.items()]))
        same(r.outputs)

    rpc(grpc_address, calls)


@works("V2 over gRPC: errors")
def test_grpc_errors(grpc_address):
    async def calls(c):
        with pytest.raises(grpc.RpcError) as e:
            await c.infer(request("nobody", [tensor("x", FOUR)]))
        assert e.value.code() == grpc.StatusCode.NOT_FOUND and "nobody" in e.value.details()

    rpc(grpc_address, calls)
