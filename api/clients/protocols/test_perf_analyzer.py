"""NVIDIA's perf_analyzer. It says what works: how fast is measured by `make bench`."""

import json
import os
import re
import subprocess

import pytest

works = lambda feature: pytest.mark.works("perf-analyzer, NVIDIA's measuring program", feature)  # noqa: E731
lacks = lambda feature: pytest.mark.lacks("perf-analyzer, NVIDIA's measuring program", feature)  # noqa: E731

REQUESTS = 20


def run(folder, model, *args):
    command = [os.environ["XEBEC_PERF_ANALYZER"], "-m", model, "--request-count", str(REQUESTS), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def measures(folder, model, *args, server=True):
    """The program has counted its requests, and with Triton's protocol those that the gateway counts while it measures."""
    done = run(folder, model, *args)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and f"Request count: {REQUESTS}" in said, said[-2000:]
    if server:
        assert int(re.search(r"Successful request count: (\d+)", said).group(1)) > 0, said[-2000:]


@pytest.fixture
def different(tmp_path):
    """Inputs that differ, so that the cache does not answer all."""
    path = tmp_path / "inputs.json"
    path.write_text(json.dumps({"data": [{"x": [i, 2.0, 3.0, 4.0]} for i in (0.5, 1.5, 2.5)]}))
    return str(path)


@works("Triton's protocol over REST, binary and in JSON, with several callers and queries, versions")
@pytest.mark.parametrize("more", [(), ("-b", "4", "--concurrency-range", "4"), ("--input-tensor-format", "json", "--output-tensor-format", "json"), ("-x", "1")], ids=lambda m: " ".join(m))
def test_rest(tmp_path, address, different, more):
    measures(tmp_path, "numbers", "-i", "http", "-u", address, "--input-data", different, *more)


@works("Triton's protocol over gRPC, with several callers and queries, asynchronous and in streams, versions")
@pytest.mark.parametrize("more", [(), ("-b", "4", "--concurrency-range", "4"), ("--async",), ("--async", "--streaming"), ("-x", "1")], ids=lambda m: " ".join(m))
def test_grpc(tmp_path, grpc_address, different, more):
    measures(tmp_path, "numbers", "-i", "grpc", "-u", grpc_address, "--input-data", different, *more)


@works("TensorFlow Serving's protocol over gRPC (--service-kind tfserving), of models and functions")
@pytest.mark.parametrize("model", ["numbers", "answer"])
def test_tensorflow(tmp_path, grpc_address, model):
    measures(tmp_path, model, "-i", "grpc", "-u", grpc_address, "--service-kind", "tfserving", "-b", "2", "--shape", "x:4", server=False)


@works("OpenAI's protocol (--service-kind openai): completions and chat completions")
@pytest.mark.parametrize("model, path, body", [
    ("say", "v1/completions", {"prompt": "a b c", "max_tokens": 3}),
    ("talk", "v1/chat/completions", {"messages": [{"role": "user", "content": "a b c"}]}),
])
def test_openai(tmp_path, address, model, path, body):
    (tmp_path / "inputs.json").write_text(json.dumps({"data": [{"payload": [{"model": model, **body}]}]}))
    measures(tmp_path, model, "-i", "http", "-u", address, "--service-kind", "openai", "--async", "--endpoint", path, "--input-data", "inputs.json", server=False)


@lacks("Triton's protocol of a function: statistics of it have no version, which the program looks for")
def test_function(tmp_path, grpc_address):
    done = run(tmp_path, "answer", "-i", "grpc", "-u", grpc_address)
    assert "failed to find the requested model version" in done.stdout + done.stderr


@lacks("Triton's protocol of a model whose only dimension is that of the queries: the program wants another one")
def test_scalar(tmp_path, grpc_address):
    done = run(tmp_path, "price", "-i", "grpc", "-u", grpc_address)
    assert "unable to set shape for the input" in done.stdout + done.stderr
