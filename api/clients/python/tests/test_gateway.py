"""Against a gateway with api/clients/testdata, whose address is in XEBEC_SERVER."""

import asyncio
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import xebec_client
from xebec_client import AsyncClient, Client, Prediction


@pytest.fixture
def client():
    assert os.environ.get("XEBEC_SERVER"), "XEBEC_SERVER names no gateway: run .ci/clients.sh"
    with Client() as client:
        yield client


def test_describe(client):
    assert {"echo", "words", "learning"} <= set(client.functions())
    d = client.describe("pair")
    assert [t["name"] for t in d["inputs"]] == ["number", "text"] and client.predict("pair", d["example"]["input"]).output == {
        "number": 0,
        "text": "",
    }


def test_values(client):
    p = client.predict("echo", [1.5, 2])
    assert isinstance(p, Prediction) and p.output == [1.5, 2] and p.models == ("echo@1",) and not p.default and p.query_id > 0
    assert client.predict("pair", {"number": 1 << 62, "text": "ü"}).output["number"] == 1 << 62
    assert client.predict("markers", b"\x00\xff").output == b"\x00\xff"
    assert client.predict("markers", "text").output == b"text"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_arrays(client, dtype):
    a = np.arange(64 * 64, dtype=dtype).reshape(64, 64) % 1000
    p = client.predict("square", a)
    assert p.output.dtype == np.float32 and p.output.flags.c_contiguous and np.array_equal(p.output, a)
    assert p.models == ("square@1",) and p.query_id > 0 and p.confidence == 1
    assert np.array_equal(client.predict("square", a.T).output, a.T)  # not row-major in memory
    assert client.predict("square", a, arrays=False).output == a.tolist()
    assert isinstance(client.predict("square", a.tolist(), arrays=True).output, np.ndarray)


def test_an_array_in_json(client):
    p = client.predict("echo", np.array([1, np.nan], dtype=np.float32))
    assert p.output.dtype == np.float32 and p.output[0] == 1 and np.isnan(p.output[1])
    assert client.predict("pair", {"number": np.int64(3), "text": "x"}).output["number"] == 3
    assert client.predict("echo", np.ones(300), parameters=None, salt="s").output.shape == (300,)


def test_a_data_frame(client):
    frame = pd.DataFrame({"text": ["a", "b"], "number": [1, 2], "other": [math.nan, 1]})
    answers = client.predict_batch("pair", frame[["text", "number"]])
    assert [a.output["number"] for a in answers] == [1, 2]
    with pytest.raises(xebec_client.InvalidRequest, match="other"):
        client.predict_batch("pair", frame)
    assert client.predict("pair", frame[["text", "number"]].iloc[1]).output["number"] == 2
    assert np.isnan(client.predict("echo", [1, math.nan], arrays=True).output[1])


def test_arrays_that_do_not_fit(client):
    with pytest.raises(ValueError, match=r"shape \[2, 2\]: expected \[64, 64\]"):
        xebec_client._arrays.to_bytes(np.zeros((2, 2)), client.describe("square")["inputs"][0])
    with pytest.raises(ValueError, match="dtype complex128: expected float32"):
        client.predict("square", np.zeros((64, 64), dtype=complex))
    with pytest.raises(xebec_client.InvalidRequest):
        client.predict("square", np.zeros((2, 2)))
    with pytest.raises(ValueError, match="cannot hold"):
        xebec_client._arrays.to_bytes(np.array([300]), {"name": "a", "dtype": "uint8", "shape": [1]})


def test_batches(client):
    assert [p.output for p in client.predict_batch("echo", [[1], [2, 3]])] == [[1], [2, 3]]
    outputs = [p.output for p in client.predict_batch("square", np.ones((3, 64, 64), dtype=np.float32))]
    assert len(outputs) == 3 and outputs[0].shape == (64, 64)
    mixed = client.predict_batch("markers", ["ok", "refuse:no such thing"], errors="return")
    assert mixed[0].output == b"ok" and isinstance(mixed[1], xebec_client.InvalidRequest) and "no such thing" in mixed[1].message
    assert mixed[1].query_id == mixed[0].query_id + 1
    with pytest.raises(xebec_client.InvalidRequest, match="no such thing"):
        client.predict_batch("markers", ["ok", "refuse:no such thing"])


def test_what_a_call_may_say(client):
    assert client.predict("markers", "context", context="user-17").output == b"user-17"
    assert client.predict("markers", "parameters", parameters={"top_k": 3}).output == b'{"top_k":3}'
    assert client.predict("learning", [1], models=["echo@1"]).models == ("echo@1",)
    for slo_ms in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="slo_ms"):
            client.predict("echo", [1], slo_ms=slo_ms)


def test_errors_and_defaults(client):
    with pytest.raises(xebec_client.ModelFailed) as caught:
        client.predict("markers", "error")
    assert caught.value.code == "model_error" and caught.value.status == 502 and caught.value.request_id
    with pytest.raises(xebec_client.NotFound, match="no function"):
        client.predict("missing", 1)
    p = client.predict("guarded", "error")
    assert p.default and p.output == b"default" and p.default_explanation and p.confidence == 0


def test_streams(client):
    with client.stream("words", "count:3") as stream:
        assert stream.query_id > 0
        assert list(stream) == ["0", "1", "2"] and not stream.default
    with client.stream("words", "forever:1000") as stream:
        assert len(next(iter(stream))) == 1000
    with pytest.raises(xebec_client.InvalidRequest, match="no-further"):
        list(client.stream("words", "count:1 refuse:no-further"))
    with pytest.raises(xebec_client.NotFound):
        client.stream("missing", "x")
    assert list(client.stream("echo", [1.0])) == [[1.0]]  # of a model that answers at once


def test_feedback(client):
    p = client.predict("learning", [5])
    assert client.feedback("learning", p, label=[5]).status == "counted"
    assert client.feedback("learning", p.query_id, correct=True).status == "duplicate"
    with pytest.raises(xebec_client.NotFound):
        client.feedback("learning", 12345, loss=0.5)
    many = [{"query_id": q.query_id, "loss": 0.25} for q in client.predict_batch("learning", [[1], [2]])]
    assert [r.status for r in client.feedback_batch("learning", many)] == ["counted", "counted"]
    for wrong in ({}, {"label": 1, "correct": True}):
        with pytest.raises(TypeError, match="one thing"):
            client.feedback("learning", p, **wrong)


def test_threads_share_connections(client):
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda i: client.predict("echo", [i]).output[0], range(100))) == list(range(100))
    connections = client._http._transport._pool.connections
    assert 0 < len(connections) <= 8


def test_asyncio():
    async def run():
        async with AsyncClient() as client:
            all_ = await asyncio.gather(*(client.predict("echo", [i]) for i in range(50)))
            assert [p.output[0] for p in all_] == list(range(50))
            a = np.ones((64, 64), dtype=np.float32)
            assert np.array_equal((await client.predict("square", a)).output, a)
            assert [p.output for p in await client.predict_batch("echo", [[1], [2]])] == [[1], [2]]
            async with await client.stream("words", "count:3") as stream:
                assert [o async for o in stream] == ["0", "1", "2"]
            p = await client.predict("learning", [5])
            assert (await client.feedback("learning", p, label=[5])).status == "counted"
            many = [{"query_id": (await client.predict("learning", [1])).query_id, "loss": 0.25}]
            assert [r.status for r in await client.feedback_batch("learning", many)] == ["counted"]
            assert "echo" in await client.functions() and (await client.describe("echo"))["function"] == "echo"
            with pytest.raises(xebec_client.ModelFailed):
                await client.predict("markers", "error")

    asyncio.run(run())


def test_guide(capsys):
    """The blocks of the guide's page run one after the other, and print what the page says."""
    page = (Path(__file__).parents[4] / "deploy/guide/python-client.md").read_text()
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```\n", page, re.M | re.S)
    assert len(blocks) > 3
    for block in blocks:
        exec(compile(block, "python-client.md", "exec"), names)
        printed, said = capsys.readouterr().out.splitlines(), re.findall(r"^ *print\(.*\)  # (.*)$", block, re.M)
        assert said == printed if said else "print(" not in block or printed, block
