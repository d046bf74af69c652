"""Clipper's own library of management, against the admin port."""

import os

import pytest
import requests
from clipper_admin import ClipperException

import clipper_gateway

works = lambda feature: pytest.mark.works("clipper_admin, Clipper's management", feature)  # noqa: E731
refused = lambda feature: pytest.mark.refused("clipper_admin, Clipper's management", feature)  # noqa: E731
lacks = lambda feature: pytest.mark.lacks("clipper_admin, Clipper's management", feature)  # noqa: E731


@pytest.fixture(scope="module")
def clipper(address):
    return clipper_gateway.connect(address, os.environ["XEBEC_ADMIN"])


def predict(clipper, app, body):
    r = requests.post(f"http://{clipper.get_query_addr()}/{app}/predict", json=body, timeout=60)
    assert r.status_code == 200, r.text
    return r.json()


DEFAULT = "[-1.0,-1.0,-1.0,-1.0]"  # as an output of the model


@pytest.fixture
def app(clipper, name):
    name = "app-" + name[:12]
    clipper.register_application(name, "floats", DEFAULT, 60_000_000)
    yield name
    clipper.unregister_application(name)


@works("register_application, link_model_to_app, unlink_model_from_app, unregister_application")
def test_application(clipper, app):
    unlinked = predict(clipper, app, {"input": [1, 2, 3, 4]})
    assert (unlinked["output"], unlinked["default"], unlinked["default_explanation"]) == ([-1, -1, -1, -1], True, "No connected models found for query")
    clipper.link_model_to_app(app, "numbers")
    assert predict(clipper, app, {"input": [1, 2, 3, 4]})["output"] == [1, 2, 3, 4]
    answers = predict(clipper, app, {"input_batch": [[1, 2, 3, 4], [5, 6, 7, 8]]})["batch_predictions"]
    assert [(a["output"], a["default"]) for a in answers] == [([1, 2, 3, 4], False), ([5, 6, 7, 8], False)]
    assert clipper.get_linked_models(app) == ["numbers"]
    clipper.unlink_model_from_app(app, "numbers")
    assert clipper.get_linked_models(app) == [] and predict(clipper, app, {"input": [1, 2, 3, 4]})["default"]


@works("get_all_apps, get_app_info, get_linked_models")
def test_questions(clipper, app):
    assert app in clipper.get_all_apps() and "answer" in clipper.get_all_apps()
    info = clipper.get_app_info(app)
    assert info == {"name": app, "input_type": "floats", "default_output": DEFAULT, "latency_slo_micros": 60_000_000, "linked_models": []}
    assert info in clipper.get_all_apps(verbose=True)
    assert clipper.get_app_info("app-nobody") is None


@works("get_all_models, get_model_info, get_current_model_version")
def test_models(clipper):
    assert {"numbers:1", "versions:1", "versions:2"} <= set(clipper.get_all_models())
    info = clipper.get_model_info("numbers", 1)
    assert info["model_name"] == "numbers" and info["input_type"] == "floats" and info["is_current_version"], info
    assert info in clipper.get_all_models(verbose=True)
    assert clipper.get_model_info("numbers", 7) is None and clipper.get_current_model_version("versions") == "2"


@works("get_all_model_replicas, get_model_replica_info, get_num_replicas")
def test_replicas(clipper):
    assert clipper.get_num_replicas("numbers") == 1
    replica = next(r for r in clipper.get_all_model_replicas(verbose=True) if r["model_id"] == "numbers:1")
    assert clipper.get_model_replica_info("numbers", "1", replica["model_replica_id"]) == replica
    assert len(clipper.get_all_model_replicas()) >= 10


@works("set_model_version, back and forth")
def test_set_version(clipper, address):
    def serves():
        r = requests.post(f"http://{address}/v1/models/versions:predict", json={"instances": [[1, 2, 3, 4]]}, timeout=60)
        return r.json()["predictions"]

    for version in (1, 2):
        clipper.set_model_version("versions", version)
        assert clipper.get_current_model_version("versions") == str(version) and serves() == [version]


@works("errors as ClipperException")
def test_errors(clipper, app):
    for words, call in (
        ("already exists", lambda: clipper.register_application(app, "floats", "-1.0", 1000)),
        ("nobody", lambda: clipper.link_model_to_app(app, "nobody")),
        ("input_type", lambda: clipper.link_model_to_app(app, "words")),
        ("7", lambda: clipper.set_model_version("versions", 7)),
        ("app-nobody", lambda: clipper.unregister_application("app-nobody")),
        ("nobody", lambda: clipper.get_current_model_version("nobody")),
    ):
        with pytest.raises(ClipperException) as e:
            call()
        assert words in e.value.msg, e.value.msg


@works("deploy_model, which adds the image of a model; stop_versioned_models")
def test_deploy(clipper, name):
    model = "model-" + name[:12]
    clipper.deploy_model(model, 1, "floats", "registry.example.com/model:1", labels=["a"], batch_size=8)
    info = clipper.get_model_info(model, 1)
    assert (info["container_name"], info["input_type"], info["labels"], info["batch_size"]) == ("registry.example.com/model:1", "floats", ["a"], 8)
    clipper.stop_versioned_models({model: ["1"]})
    assert clipper.get_model_info(model, 1) is None


@refused("register_model without an image, set_num_replicas")
def test_refused(clipper):
    with pytest.raises(ClipperException) as e:
        clipper.register_model("own", 1, "floats")
    assert "NO_CONTAINER" in e.value.msg and clipper.get_model_info("own", 1) is None
    with pytest.raises(ClipperException) as e:
        clipper.set_num_replicas("numbers", 2)
    assert "xebec scale" in e.value.msg


@lacks("inspect_instance: metrics are those of Prometheus, at the admin port")
def test_metrics(clipper):
    with pytest.raises(ClipperException):
        clipper.inspect_instance()
    assert "# TYPE xebec_" in requests.get(f"http://{clipper.get_metric_addr()}/metrics", timeout=60).text
