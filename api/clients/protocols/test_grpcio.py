"""Our own service over gRPC, with code that grpcio's tools make of the published description."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

works = lambda feature: pytest.mark.works("grpcio, with our own service", feature)  # noqa: E731
ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "deploy/guide/grpc.md").read_text()


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder in which the guide's command has made modules."""
    out = tmp_path_factory.mktemp("made")
    (out / "api").symlink_to(ROOT / "api")
    command = re.search(r"^python (-m grpc_tools\.protoc .+)$", GUIDE, re.MULTILINE).group(1)
    subprocess.run([sys.executable, *command.split()], cwd=out, check=True)
    return out


@pytest.fixture(scope="module")
def made(out):
    """The modules of messages and of stubs."""
    sys.path.insert(0, str(out))
    return importlib.import_module("xebec_grpc.v1.functions_pb2"), importlib.import_module("xebec_grpc.v1.functions_pb2_grpc")


@works("the guide's program, in an environment with the worker binding")
def test_guide(out, grpc_address):
    program = re.search(r"```python\n(import grpc\nfrom xebec_grpc.+?)```", GUIDE, re.DOTALL).group(1)
    program = program.replace("127.0.0.1:1339", grpc_address).replace("[0] * 64", "[0] * 4").replace('"digits"', '"answer"')
    binding = ROOT / "worker/bindings/python/src"
    beside = f"import sys; sys.path[:0] = [{str(out)!r}, {str(binding)!r}]; import xebec; assert xebec.serve"
    done = subprocess.run([sys.executable, "-c", f"{beside}\n{program}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and 'dtype: "float32"' in done.stdout, done


@pytest.fixture
def stub(made, grpc_address):
    with grpc.insecure_channel(grpc_address) as channel:
        yield made[1].FunctionsStub(channel)


def numbers(pb, *values):
    return [pb.Tensor(name="x", numbers=values)]


@works("Predict and its default")
def test_predict(made, stub, seconds):
    pb, _ = made
    p = stub.Predict(pb.PredictRequest(function="answer", inputs=numbers(pb, 1, 2, 3, 4), options=pb.Options(slo_ms=60_000)), timeout=seconds)
    assert p.query_id and list(p.models) == ["numbers@1"] and not p.default and len(p.outputs[0].data) == 16, p
    p = stub.Predict(pb.PredictRequest(function="safe", inputs=numbers(pb, 1, 2, 3, 4)), timeout=seconds)
    assert p.default and p.default_explanation


@works("PredictBatch, PredictStream and Feedback")
def test_others(made, stub, seconds):
    pb, _ = made
    b = stub.PredictBatch(pb.PredictBatchRequest(function="answer", queries=[pb.Query(inputs=numbers(pb, i, 0, 0, 0)) for i in range(20)]), timeout=seconds)
    assert len({p.query_id for p in b.predictions}) == 20
    said = stub.PredictStream(pb.PredictRequest(function="say", inputs=[pb.Tensor(items=[b"a b c"])]), timeout=seconds)
    assert [p.outputs[0].items[0] for p in said] == [b"A ", b"B ", b"C "]
    assert stub.Feedback(pb.FeedbackRequest(function="answer", query_id=b.predictions[0].query_id, correct=True), timeout=seconds).status


@works("versions of models, as name@version or name@label")
def test_versions(made, stub, seconds):
    pb, _ = made
    for name, want in (("versions@1", 1), ("versions@second", 2)):
        p = stub.Predict(pb.PredictRequest(function=name, inputs=numbers(pb, 1, 2, 3, 4)), timeout=seconds)
        assert int.from_bytes(p.outputs[0].data, "little") == want and list(p.models) == [f"versions@{want}"], p


@works("errors; a call to the function port names the right one")
def test_errors(made, stub, seconds, address, grpc_address):
    pb, grpc_module = made
    with pytest.raises(grpc.RpcError) as e:
        stub.Predict(pb.PredictRequest(function="nobody"), timeout=seconds)
    assert e.value.code() == grpc.StatusCode.NOT_FOUND and dict(e.value.trailing_metadata())["xebec-code"]
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as e:
        grpc_module.FunctionsStub(channel).Predict(pb.PredictRequest(function="answer"), timeout=seconds)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED and grpc_address in e.value.details()
