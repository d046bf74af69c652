"""Calls of other functions, on both engines, against a gateway that answers them in this process."""

import json
import threading

import numpy as np
from lines import Callee

from xebec import _protocol as p


def double():
    return Callee({"x": "float32[2]"}, {"y": "float64[2]"}, lambda head, values: [values[0] * 2.0])


def test_arrays(calling):
    gw, lines = calling(
        "xebec.serve(lambda batch: xebec.call.many('double', batch) + xebec.call('double', [1, 2]))",
        {"double": double()}, "float64[2]", "float64[2]",
    )  # fmt: skip
    for _ in range(3):
        r, out = gw.predict(np.array([[1.0, 2.0], [3.0, 4.0]]))
        assert r.status == p.OK and out.tolist() == [[4, 8], [8, 12]]
    assert lines.given == 1  # it is kept
    gw.stop()


def test_several_inputs_and_outputs(calling):
    join = Callee(
        {"text": "string[]", "raw": "bytes[]", "n": "int64[-1]"},
        {"text": "string[]", "sum": "int64[]"},
        lambda head, v: [[t + r.decode() for t, r in zip(v[0], v[1])], [int(a.sum()) for a in v[2]]],
    )
    gw, _ = calling(
        "def predict(batch):\n"
        "    one = xebec.call('join', {'text': 'a', 'raw': b'b', 'n': [1, 2]})\n"
        "    many = xebec.call.many('join', {'text': ['c', 'd'], 'raw': [b'', b'e'], 'n': [[], [5]]})\n"
        "    return [json.dumps([one['text'], int(one['sum']), many['text'], many['sum'].tolist()])]\n"
        "xebec.serve(predict)",
        {"join": join},
    )
    r, out = gw.predict([b"x"])
    assert r.status == p.OK and json.loads(out[0]) == ["ab", 3, ["c", "de"], [0, 5]]
    gw.stop()


def test_what_a_call_says(calling):
    gw, lines = calling(
        "def predict(batch):\n"
        "    query = len(batch) - 1 if len(batch) == 3 else None\n"
        "    xebec.call('double', [1, 2], query=query, context='ann', timeout=1.5, parameters={'k': 'é'})\n"
        "    return batch\n"
        "xebec.serve(predict)",
        {"double": double()},
    )
    for batch, says in (([b"a"], "1.0"), ([b"a", b"b"], "2"), ([b"a", b"b", b"c"], "3.2")):
        r, _ = gw.predict(batch)
        assert r.status == p.OK
        head = lines.heads[-1]
        assert (head["xebec-for"], head["xebec-context"], head["xebec-slo-ms"]) == (says, "ann", "1500.000")
        assert json.loads(head["xebec-parameters"]) == {"k": "é"}
    gw.stop()


def test_errors_can_be_caught(calling):
    refuses = Callee({"x": "bytes[]"}, {"y": "bytes[]"}, lambda head, v: (504, "too late", "deadline_exceeded"))
    gw, _ = calling(
        "def attempt(code):\n"
        "    try:\n"
        "        return str(eval(code))\n"
        "    except xebec.CallError as e:\n"
        "        return json.dumps([e.callee, e.code, str(e)])\n"
        "xebec.serve(lambda batch: [attempt(code) for code in batch], text=True)",
        {"refuses": refuses, "double": double()},
    )
    for code, callee, kind, text in (
        ("xebec.call('refuses', b'')", "refuses", "deadline_exceeded", "call of 'refuses': too late (deadline_exceeded)"),
        ("xebec.call('none', b'')", "none", "not_found", "no function or model"),
        ("xebec.call('a/b c', b'')", "a/b c", "not_found", "no name"),
        ("xebec.call('double', [1, 2, 3])", "double", "invalid_argument", "shape (1, 3)"),
        ("xebec.call('double', {'z': 1})", "double", "invalid_argument", "input 'x'"),
        ("xebec.call.many('double', [])", "double", "invalid_argument", "no inputs"),
        ("xebec.call('double', [1, 2], context='a\\nb')", "double", "invalid_argument", "line breaks"),
    ):
        r, out = gw.predict([code.encode()])
        assert r.status == p.OK
        said = json.loads(out[0])
        assert said[:2] == [callee, kind] and text in said[2], said
    gw.stop()


def test_an_error_that_is_not_caught_fails_its_query(calling):
    def answer(head, values):
        return (400, "bad", "invalid_input") if values[0][0] == b"refused" else (502, "broken", "model_error")

    gw, _ = calling(
        "xebec.serve(lambda batch: [xebec.call('stage', x) for x in batch])",
        {"stage": Callee({"x": "bytes[]"}, {"y": "bytes[]"}, answer)},
    )
    r, out = gw.predict([b"refused"])
    assert (r.status, r.flags) == (p.OK, p.FLAG_STATUSES)
    assert out[1:] == [(1,), ["call of 'stage': bad (invalid_input)"]]
    r, out = gw.predict([b"broken"])
    assert r.status == p.MODEL_ERROR and "call of 'stage': broken (model_error)" in out and "Traceback" in out
    gw.stop()


def test_an_error_may_stand_in_a_querys_place(calling):
    gw, _ = calling(
        "def one(x):\n"
        "    try:\n"
        "        return xebec.call('none', x)\n"
        "    except xebec.CallError as e:\n"
        "        return e\n"
        "xebec.serve(lambda batch: [x if x == b'good' else one(x) for x in batch])",
        {},
    )
    r, out = gw.predict([b"good", b"bad"])
    assert r.status == p.OK and out[1] == (0, 2) and out[2][1].startswith("call of 'none'")
    gw.stop()


def test_a_signature_that_changes(calling):
    callee = double()
    gw, _ = calling("xebec.serve(lambda batch: xebec.call.many('double', batch))", {"double": callee}, "float32[2]", "float64[2]")
    assert gw.predict(np.ones((1, 2), "float32"))[1].tolist() == [[2, 2]]
    callee.digest, callee.answer = "d2", lambda head, values: [values[0] * 3.0]
    assert gw.predict(np.ones((1, 2), "float32"))[1].tolist() == [[3, 3]]
    gw.stop()


def test_async_calls_at_once(calling):
    meet = threading.Barrier(4)

    def answer(head, values):
        meet.wait(60)
        return [[v.upper() for v in values[0]]]

    gw, lines = calling(
        "import asyncio\n"
        "async def predict(batch):\n"
        "    ones = (xebec.acall('up', c) for c in (b'a', b'b', b'c'))\n"
        "    many, *ones = await asyncio.gather(xebec.acall.many('up', [b'x', b'y']), *ones)\n"
        "    return [b''.join(many + ones) for _ in batch]\n"
        "xebec.serve(predict)",
        {"up": Callee({"x": "bytes[]"}, {"y": "bytes[]"}, answer)},
    )
    r, out = gw.predict([b""])
    assert r.status == p.OK and out == [b"XYABC"]
    assert {head.get("xebec-for", "1.0") for head in lines.heads} == {"1.0"}
    gw.stop()


def test_async_calls_wait_for_a_line(calling):
    gw, lines = calling(
        "import asyncio\n"
        "xebec._calls.MAX_LINES = 2\n"
        "async def predict(batch):\n"
        "    await asyncio.gather(*(xebec.acall('double', [i, i]) for i in range(20)))\n"
        "    return batch\n"
        "xebec.serve(predict)",
        {"double": double()},
    )
    assert gw.predict([b"x"])[0].status == p.OK and lines.given == 2
    gw.stop()


def test_a_gateway_that_gives_no_line(calling):
    gw, _ = calling("xebec.serve(lambda batch: xebec.call('double', [1, 2]))", {"double": double()}, limit=0)
    r, text = gw.predict([b"x"])
    assert r.status == p.MODEL_ERROR and "call of 'double': the gateway gives no connection" in text
    gw.stop()


def test_a_line_that_breaks(calling):
    broken = Callee({"x": "bytes[]"}, {"y": "bytes[]"}, None)
    broken.call = lambda head, body: (None, None)
    gw, lines = calling("xebec.serve(lambda batch: xebec.call('broken', b''))", {"broken": broken})
    for given in (1, 2):
        r, text = gw.predict([b"x"])
        assert r.status == p.MODEL_ERROR and "(unavailable)" in text and lines.given == given
    gw.stop()


def test_threads_and_streams_know_their_query(calling):
    gw, lines = calling(
        "def predict(batch):\n    yield xebec.call('double', [1, 2]).tobytes()\nxebec.serve(predict)", {"double": double()}
    )
    gw.predict([b"a"])
    assert lines.heads[-1]["xebec-for"] == "1.0"


def test_a_model_without_calls(start):
    gw = start("import xebec\nxebec.serve(lambda batch: xebec.call('double', [1, 2]))")
    r, text = gw.predict([b"x"])
    assert r.status == p.MODEL_ERROR and "add calls: [double] to its manifest" in text
    gw.stop()


def test_a_call_when_the_module_is_loaded(start):
    gw = start(
        "import xebec\n"
        "try:\n"
        "    xebec.call('double', [1, 2])\n"
        "except xebec.CallError as e:\n"
        "    said = str(e)\n"
        "xebec.serve(lambda batch: [said])"
    )
    r, out = gw.predict([b"x"])
    assert r.status == p.OK and b"only in predict, while it evaluates a query of the gateway: not when the module is loaded" in out[0]
    gw.stop()


def test_lines_out_of_place(start):
    gw = start("import xebec\nxebec.serve(lambda batch: batch)")
    gw.send(p.LINES)
    assert gw.wait()[0] == 1
