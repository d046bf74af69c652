"""curl, and fetch as browsers have it."""

import gzip
import json
import subprocess

import pytest

curl = lambda feature: pytest.mark.works("curl", feature)  # noqa: E731
fetch = lambda feature: pytest.mark.works("fetch, of Node.js", feature)  # noqa: E731


def curled(*args):
    return subprocess.run(["curl", "-sS", "--max-time", "60", *args], capture_output=True, text=True, check=True).stdout


@curl("predict, batches and feedback")
def test_predict(address):
    p = json.loads(curled("-d", '{"input": [1, 2, 3, 4]}', f"http://{address}/answer/predict"))
    assert p["output"] == [1, 2, 3, 4], p
    assert curled("-o", "/dev/null", "-w", "%{http_code}", "-d", f'{{"query_id": {p["query_id"]}, "correct": true}}', f"http://{address}/answer/feedback") == "200"


@curl("compressed requests and answers; streams; errors")
def test_forms(address, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(gzip.compress(b'{"input": [1, 2, 3, 4]}'))
    answer = curled("--compressed", "-H", "Content-Encoding: gzip", "-H", "Content-Type: application/json", "--data-binary", f"@{body}", f"http://{address}/answer/predict")
    assert json.loads(answer)["output"] == [1, 2, 3, 4]
    events = curled("-N", "-H", "Accept: text/event-stream", "-d", '{"input": "a b"}', f"http://{address}/say/predict")
    assert "A " in events and "B " in events and "data:" in events, events
    refused = curled("-w", "%{http_code}", "-d", "{", f"http://{address}/answer/predict")
    assert refused.endswith("400") and '"code"' in refused, refused


@curl("HTTP/2 without TLS (--http2-prior-knowledge)")
def test_http2(address):
    assert curled("--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "-d", '{"input": [1, 2, 3, 4]}', f"http://{address}/answer/predict") == "2 200"


SCRIPT = """
const [address] = process.argv.slice(1)
const post = (path, body, more = {}) => fetch(`http://${address}${path}`, {method: "POST", body: JSON.stringify(body), signal: more.signal, headers: {"Content-Type": "application/json", ...more.headers}})
const equal = (got, want) => {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${JSON.stringify(got)}, expected ${JSON.stringify(want)}`)
}
"""


def ran(address, script):
    done = subprocess.run(["node", "--input-type=module", "-e", SCRIPT + script, address], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@fetch("predict and its errors; the Open Inference Protocol")
def test_fetch(address):
    ran(address, """
equal((await (await post("/answer/predict", {input: [1, 2, 3, 4]})).json()).output, [1, 2, 3, 4])
equal((await post("/answer/predict", {input: [1]})).status, 400)
const rows = await post("/v2/models/answer/infer", {inputs: [{name: "x", shape: [1, 4], datatype: "FP32", data: [1, 2, 3, 4]}]})
equal((await rows.json()).outputs[0].data, [1, 2, 3, 4])
""")


@fetch("streams, and leaving one (AbortController)")
def test_fetch_stream(address, name):
    ran(address, f"""
const answer = await post("/say/predict", {{input: "a b"}}, {{headers: {{Accept: "text/event-stream"}}}})
const events = await answer.text()
if (!events.includes("A ") || !events.includes("B ")) throw new Error(events)
const leaving = new AbortController()
const left = await post("/say/predict", {{input: "forever {name}"}}, {{headers: {{Accept: "text/event-stream"}}, signal: leaving.signal}})
await left.body.getReader().read()
leaving.abort()
equal((await (await post("/say/predict", {{input: "ended {name}"}}, {{headers: {{Accept: "text/event-stream"}}}})).text()).includes("ENDED "), true)
""")
