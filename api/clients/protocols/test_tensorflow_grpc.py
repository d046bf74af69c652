"""TensorFlow Serving's client over gRPC."""

import grpc
import numpy as np
import pytest

import tensorflow_protos

tensorflow_protos.provide()
from tensorflow.core.example import example_pb2, feature_pb2  # noqa: E402
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tensors import EVERY, FOUR  # noqa: E402

works = lambda feature: pytest.mark.works("tensorflow-serving-api, TensorFlow Serving's client over gRPC", feature)  # noqa: E731
refused = lambda feature: pytest.mark.refused("tensorflow-serving-api, TensorFlow Serving's client over gRPC", feature)  # noqa: E731

# The type of each kind of array, and the field that has its values.
TYPES = {
    "bool": (types_pb2.DT_BOOL, "bool_val"),
    "int8": (types_pb2.DT_INT8, "int_val"),
    "int16": (types_pb2.DT_INT16, "int_val"),
    "int32": (types_pb2.DT_INT32, "int_val"),
    "int64": (types_pb2.DT_INT64, "int64_val"),
    "uint8": (types_pb2.DT_UINT8, "int_val"),
    "uint16": (types_pb2.DT_UINT16, "int_val"),
    "uint32": (types_pb2.DT_UINT32, "uint32_val"),
    "uint64": (types_pb2.DT_UINT64, "uint64_val"),
    "float16": (types_pb2.DT_HALF, "half_val"),
    "float32": (types_pb2.DT_FLOAT, "float_val"),
    "float64": (types_pb2.DT_DOUBLE, "double_val"),
    "object": (types_pb2.DT_STRING, "string_val"),
}


def shaped(data):
    dims = [tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in data.shape]
    return tensor_pb2.TensorProto(dtype=TYPES[data.dtype.name][0], tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=dims))


def in_content(data):
    """The tensor by its content, as tensorflow.make_tensor_proto writes numbers; texts as TensorFlow's C++ writes them."""
    t = shaped(data)
    if data.dtype == object:
        items = [x.encode() for x in data.flat]
        assert all(len(x) < 128 for x in items), "a length of one byte"
        t.tensor_content = bytes(len(x) for x in items) + b"".join(items)
    else:
        t.tensor_content = data.tobytes()
    return t


def in_values(data):
    """The tensor by the values of its type, as tensorflow.make_tensor_proto writes texts."""
    t = shaped(data)
    if data.dtype == object:
        values = [x.encode() for x in data.flat]
    else:
        values = data.view(np.uint16).ravel().tolist() if data.dtype == np.float16 else data.ravel().tolist()
    getattr(t, TYPES[data.dtype.name][1]).extend(values)
    return t


def array(t):
    """The tensor's array, as tensorflow.make_ndarray reads it."""
    kind = next(k for k, (number, _) in TYPES.items() if number == t.dtype)
    shape = [d.size for d in t.tensor_shape.dim]
    if t.tensor_content:
        return np.frombuffer(t.tensor_content, dtype=kind).reshape(shape)
    values = list(getattr(t, TYPES[kind][1]))
    if kind == "float16":
        return np.array(values, dtype=np.uint16).view(np.float16).reshape(shape)
    return np.array(values, dtype=kind).reshape(shape)


def example(**features):
    made = {}
    for name, values in features.items():
        if isinstance(values[0], bytes):
            made[name] = feature_pb2.Feature(bytes_list=feature_pb2.BytesList(value=values))
        elif isinstance(values[0], float):
            made[name] = feature_pb2.Feature(float_list=feature_pb2.FloatList(value=values))
        else:
            made[name] = feature_pb2.Feature(int64_list=feature_pb2.Int64List(value=values))
    return example_pb2.Example(features=feature_pb2.Features(feature=made))


def spec(name, version=None, label=None, signature=None):
    s = model_pb2.ModelSpec(name=name, version_label=label, signature_name=signature)
    if version is not None:
        s.version.value = version
    return s


def ask(model, **inputs):
    return predict_pb2.PredictRequest(model_spec=model if isinstance(model, model_pb2.ModelSpec) else spec(model), inputs=inputs)


@pytest.fixture(scope="module")
def channel(grpc_address):
    with grpc.insecure_channel(grpc_address) as c:
        yield c


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture
def models(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


def fails(code, words, call):
    with pytest.raises(grpc.RpcError) as e:
        call()
    assert e.value.code() == code and words in e.value.details(), (e.value.code(), e.value.details())


@works("Predict: all 13 types, by content and by values")
@pytest.mark.parametrize("write", [in_content, in_values])
def test_types(stub, seconds, write):
    r = stub.Predict(ask("every", **{name: write(data) for name, (_, data) in EVERY.items()}), timeout=seconds)
    assert set(r.outputs) == set(EVERY)
    for name, (_, data) in EVERY.items():
        want = np.array([[x.encode() for x in row] for row in data], dtype=object) if data.dtype == object else data
        assert r.outputs[name].dtype == TYPES[data.dtype.name][0] and array(r.outputs[name]).tolist() == want.tolist(), name


@works("Predict: repeated values, one query without a batch dimension, output_filter")
def test_forms(stub, seconds):
    t = shaped(FOUR)
    t.float_val.append(7)
    assert (array(stub.Predict(ask("numbers", x=t), timeout=seconds).outputs["y"]) == np.full((2, 4), 7)).all()
    assert (array(stub.Predict(ask("numbers", x=shaped(FOUR)), timeout=seconds).outputs["y"]) == np.zeros((2, 4))).all()
    assert array(stub.Predict(ask("numbers", x=in_content(FOUR[0])), timeout=seconds).outputs["y"]).tolist() == FOUR[0].tolist()
    two = ask("classes", scores=in_content(np.float32([[0.25, 0.75]])), classes=in_values(np.array([["no", "yes"]], dtype=object)))
    two.output_filter.append("classes")
    assert list(stub.Predict(two, timeout=seconds).outputs) == ["classes"]


@works("versions, labels, signature names")
def test_versions(stub, seconds):
    x = in_content(FOUR)
    for model, want in ((spec("versions"), 2), (spec("versions", 1), 1), (spec("versions", 2), 2), (spec("versions", label="first"), 1), (spec("versions", label="second"), 2), (spec("versions@1"), 1)):
        r = stub.Predict(ask(model, x=x), timeout=seconds)
        assert array(r.outputs["version"]).tolist() == [want, want] and r.model_spec.version.value == want and r.model_spec.name == "versions", model
        assert r.model_spec.signature_name == "serving_default"
    assert stub.Predict(ask(spec("numbers", signature="serving_default"), x=x), timeout=seconds).outputs


@works("functions: facts and options as metadata, defaults")
def test_functions(stub, seconds):
    r, call = stub.Predict.with_call(ask("answer", x=in_content(FOUR)), timeout=seconds, metadata=[("xebec-context", "ann")])
    facts = dict(call.initial_metadata())
    assert (array(r.outputs["y"]) == FOUR).all() and int(facts["xebec-query-id"]) > 0 and facts["xebec-models"] == "numbers@1", facts
    r, call = stub.Predict.with_call(ask("safe", x=in_content(FOUR[:1])), timeout=seconds)
    assert array(r.outputs["y"]).tolist() == [[-1, -1, -1, -1]] and dict(call.initial_metadata())["xebec-default"] == "true"


@works("Classify, with examples and a context")
def test_classify(stub, seconds):
    examples = [example(scores=[0.25, 0.75], classes=[b"no", b"yes"]), example(scores=[1, 0])]
    context = example(classes=[b"a", "ä".encode()])
    plain = input_pb2.Input(example_list=input_pb2.ExampleList(examples=examples[:1]))
    r = stub.Classify(classification_pb2.ClassificationRequest(model_spec=spec("classes"), input=plain), timeout=seconds)
    assert [(c.label, c.score) for c in r.result.classifications[0].classes] == [("no", 0.25), ("yes", 0.75)] and r.model_spec.version.value == 1
    both = input_pb2.Input(example_list_with_context=input_pb2.ExampleListWithContext(examples=examples, context=context))
    r = stub.Classify(classification_pb2.ClassificationRequest(model_spec=spec("classes"), input=both), timeout=seconds)
    assert [[(c.label, c.score) for c in x.classes] for x in r.result.classifications] == [[("no", 0.25), ("yes", 0.75)], [("a", 1), ("ä", 0)]]


@works("Regress, with examples and a context")
def test_regress(stub, seconds):
    examples = [example(rooms=[2.5]), example(rooms=[4]), example_pb2.Example()]
    both = input_pb2.Input(example_list_with_context=input_pb2.ExampleListWithContext(examples=examples, context=example(rooms=[9.0])))
    r = stub.Regress(regression_pb2.RegressionRequest(model_spec=spec("price"), input=both), timeout=seconds)
    assert [x.value for x in r.result.regressions] == [2.5, 4, 9] and r.model_spec.name == "price"


@works("GetModelMetadata")
def test_metadata(stub, seconds):
    r = stub.GetModelMetadata(get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec("every"), metadata_field=["signature_def"]), timeout=seconds)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert r.metadata["signature_def"].Unpack(found) and r.model_spec.version.value == 1, r
    signature = found.signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    for tensors in (signature.inputs, signature.outputs):
        assert {n: t.dtype for n, t in tensors.items()} == {n: TYPES[data.dtype.name][0] for n, (_, data) in EVERY.items()}
        assert all([d.size for d in t.tensor_shape.dim] == [-1, 2] and not t.tensor_shape.unknown_rank for t in tensors.values())
    fails(grpc.StatusCode.INVALID_ARGUMENT, "signature_def", lambda: stub.GetModelMetadata(get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec("every")), timeout=seconds))


@works("GetModelStatus, of a model, a version, a label and a function")
def test_status(models, seconds):
    available = get_model_status_pb2.ModelVersionStatus.State.AVAILABLE
    for model, want in ((spec("versions"), {1, 2}), (spec("versions", 1), {1}), (spec("versions", label="second"), {2}), (spec("answer"), {1})):
        r = models.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec=model), timeout=seconds)
        found = {v.version: (v.state, v.status.error_code) for v in r.model_version_status}
        assert found == {v: (available, 0) for v in want}, (model, r)


@works("errors: name, version, label, type, shape, values, models that fail")
def test_errors(stub, models, seconds):
    x = in_content(FOUR)
    code = grpc.StatusCode
    unknown = "Servable not found for request: "
    fails(code.NOT_FOUND, unknown + "Latest(nobody)", lambda: stub.Predict(ask("nobody", x=x), timeout=seconds))
    fails(code.NOT_FOUND, unknown + "Specific(versions, 7)", lambda: stub.Predict(ask(spec("versions", 7), x=x), timeout=seconds))
    fails(code.NOT_FOUND, "nolabel", lambda: stub.Predict(ask(spec("versions", label="nolabel"), x=x), timeout=seconds))
    fails(code.NOT_FOUND, unknown, lambda: models.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec=spec("nobody")), timeout=seconds))
    fails(code.INVALID_ARGUMENT, "model_spec.name", lambda: stub.Predict(predict_pb2.PredictRequest(), timeout=seconds))
    fails(code.INVALID_ARGUMENT, "DT_DOUBLE", lambda: stub.Predict(ask("numbers", x=in_content(FOUR.astype(np.float64))), timeout=seconds))
    fails(code.INVALID_ARGUMENT, "[2, 3]", lambda: stub.Predict(ask("numbers", x=in_content(FOUR[:, :3].copy())), timeout=seconds))
    fails(code.INVALID_ARGUMENT, "missing", lambda: stub.Predict(ask("numbers"), timeout=seconds))
    fails(code.INVALID_ARGUMENT, '"z"', lambda: stub.Predict(ask("numbers", x=x, z=x), timeout=seconds))
    unread = shaped(FOUR)
    unread.dtype = types_pb2.DT_COMPLEX64
    unread.scomplex_val.append(1)
    fails(code.INVALID_ARGUMENT, "DT_COMPLEX64", lambda: stub.Predict(ask("numbers", x=unread), timeout=seconds))
    many = shaped(FOUR)
    many.float_val.extend(range(9))
    fails(code.INVALID_ARGUMENT, "9 values", lambda: stub.Predict(ask("numbers", x=many), timeout=seconds))
    fails(code.INTERNAL, "failed", lambda: stub.Predict(ask("broken", x=x), timeout=seconds))


@refused("other signatures, MultiInference, models that stream")
def test_refused(stub, seconds):
    fails(grpc.StatusCode.INVALID_ARGUMENT, "serving_default", lambda: stub.Predict(ask(spec("numbers", signature="other"), x=in_content(FOUR)), timeout=seconds))
    tasks = [inference_pb2.InferenceTask(model_spec=spec("price"), method_name="tensorflow/serving/regress")]
    fails(grpc.StatusCode.UNIMPLEMENTED, "Regress", lambda: stub.MultiInference(inference_pb2.MultiInferenceRequest(tasks=tasks), timeout=seconds))
    fails(grpc.StatusCode.UNIMPLEMENTED, "ModelStreamInfer", lambda: stub.Predict(ask("words", text=in_values(np.array(["a"], dtype=object))), timeout=seconds))


@refused("HandleReloadConfigRequest, without --model-control")
def test_reload(models, seconds):
    request = model_management_pb2.ReloadConfigRequest()
    request.config.model_config_list.config.add(name="numbers")
    fails(grpc.StatusCode.UNIMPLEMENTED, "--model-control", lambda: models.HandleReloadConfigRequest(request, timeout=seconds))
