"""Clients that load and unload models of a gateway with --model-control, by REST and gRPC."""

import json
import os
import urllib.request

import grpc
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

import tensorflow_protos

tensorflow_protos.provide()
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc  # noqa: E402

from tensors import FOUR  # noqa: E402

http = lambda feature: pytest.mark.works("tritonclient.http, Triton's client over REST", feature)  # noqa: E731
rpc = lambda feature: pytest.mark.works("tritonclient.grpc, Triton's client over gRPC", feature)  # noqa: E731
tensorflow = lambda feature: pytest.mark.works("tensorflow-serving-api, TensorFlow Serving's client over gRPC", feature)  # noqa: E731
KEY = "authorization"
TOKEN = {KEY: "Bearer " + os.environ["XEBEC_TOKEN"]}
WRONG = {KEY: "Bearer " + "0" * 32}


def loaded(model):
    """Whether the model keeps a replica, as its declaration says."""
    request = urllib.request.Request(f"http://{os.environ['XEBEC_ADMIN']}/v1/models/{model}", headers=TOKEN)
    with urllib.request.urlopen(request, timeout=60) as r:
        return json.load(r)["models"][0]["spec"]["replicas"]["min"] > 0


def infer(module, client):
    t = module.InferInput("x", list(FOUR.shape), "FP32")
    t.set_data_from_numpy(FOUR)
    return (client.infer("numbers", [t]).as_numpy("y") == FOUR).all()


def controls(module, client, forbidden, unknown):
    """The model is unloaded, which changes nothing for callers, and loaded; who may not changes nothing."""
    for headers in (None, WRONG):
        with pytest.raises(InferenceServerException, match="token") as e:
            client.unload_model("numbers", headers=headers)
        assert forbidden in str(e.value.status()) and loaded("numbers")
    with pytest.raises(InferenceServerException, match="nobody") as e:
        client.load_model("nobody", headers=TOKEN)
    assert unknown in str(e.value.status())
    client.unload_model("numbers", headers=TOKEN)
    assert not loaded("numbers") and infer(module, client)
    client.load_model("numbers", headers=TOKEN)
    assert loaded("numbers") and infer(module, client)
    with pytest.raises(InferenceServerException, match="apply"):
        client.load_model("numbers", headers=TOKEN, config='{"max_batch_size": 7}')


@http("load and unload, with --model-control and a token")
def test_http(address, seconds):
    with triton_http.InferenceServerClient(address, network_timeout=seconds, connection_timeout=seconds) as client:
        controls(triton_http, client, "403", "404")


@rpc("load and unload, with --model-control and a token")
def test_grpc(grpc_address):
    with triton_grpc.InferenceServerClient(grpc_address) as client:
        controls(triton_grpc, client, "PERMISSION_DENIED", "NOT_FOUND")


@tensorflow("HandleReloadConfigRequest, with --model-control and a token")
def test_reload(grpc_address, seconds):
    def reload(*names, headers=TOKEN, **more):
        request = model_management_pb2.ReloadConfigRequest()
        for name in names:
            request.config.model_config_list.config.add(name=name, **more)
        return stub.HandleReloadConfigRequest(request, timeout=seconds, metadata=list(headers.items()))

    with grpc.insecure_channel(grpc_address) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        for headers in ({}, WRONG):
            with pytest.raises(grpc.RpcError, match="token") as e:
                reload("numbers", headers=headers)
            assert e.value.code() == grpc.StatusCode.PERMISSION_DENIED and loaded("others")
        with pytest.raises(grpc.RpcError, match="nobody"):
            reload("numbers", "nobody")
        with pytest.raises(grpc.RpcError, match="name only"):
            reload("numbers", base_path="/models/numbers", model_platform="tensorflow")
        assert loaded("others")
        assert reload("numbers").status.error_code == 0
        assert loaded("numbers") and not loaded("others")
        reload("numbers", "others")
        assert loaded("numbers") and loaded("others")
