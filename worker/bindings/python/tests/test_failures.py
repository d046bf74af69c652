"""Mistakes of a model, and what operators read then. The worker goes on in every case."""

import numpy as np
import pytest

from xebec import _protocol as p

EVAL = "import xebec, numpy as np\nxebec.serve(lambda batch: eval(batch[0]))\n"


def rejected(gw, expression, n=2):
    r, text = gw.predict([expression] * n)
    assert r.status == p.BAD_OUTPUT, (expression, text)
    assert "Traceback" not in text, (expression, text)
    return text


@pytest.mark.parametrize(
    "outputs, cases",
    [
        (
            "float32[2]",
            {
                "None": "output 'output': the value is None (is a return missing?)",
                "np.zeros((3, 2))": "an array of shape (3, 2); expected (2, 2): 2 items of float32[2]",
                "np.zeros((4, 1))": "the number of elements is right: use .reshape(n, 2), where n is the number of queries",
                "1.0": "an array of shape (); expected (2, 2)",
                "np.zeros((2, 2), complex)": "complex128 does not cast to float32",
                "['a', 'b']": "does not cast to float32",
                "[[1, 2], [3]]": "which numpy cannot convert to an array",
                "[[1, None], [3, 4]]": "list of length 2, whose element [0, 1] is None (is a return missing?); expected numbers",
                "[{'output': 1.0}, {'output': 2.0}]": "whose element [0] is dict with the keys ['output']; expected numbers",
                "(x for x in [1, 2])": "the value is generator; expected an array, or a list of numbers. predict returned a generator. "
                "A model that answers in streams has a predict that is a generator function itself, with yield, and stream: true in",
                "[2**70, 1]": "the value has values outside the range of float32",
                "{1, 2}": "the value is set of length 2; expected an array, or a list of numbers",
                "{'wrong': 1}": "dict with the keys ['wrong']; the declared outputs are ['output']",
            },
        ),
        ("int64[]", {"np.array([1.5, 2])": "float64 does not cast to int64; convert it, for example with .astype('int64')"}),
        ("bool[]", {"[1, 0]": "int64 does not cast to bool"}),
        (
            "bytes[]",
            {
                "[b'']": "predict returned 1 items for 2 queries",
                "'ab'": "predict returned str of length 2; expected a list of 2 items",
                "7": "predict returned int; expected a list",
                "(x for x in 'abc')": "predict returned 3 items for 2 queries; expected one for each. predict returned a generator",
                "[b'', 1]": "item 1 is int; expected bytes or str",
                "[b'', float('nan')]": "item 1 is float nan; expected bytes or str",
                "['', '\\ud800']": "item 1 cannot be encoded as UTF-8",
            },
        ),
        (
            "bytes[2]",
            {
                "[['a', 'b'], ['c']]": "item 1 has the shape [1]; expected bytes[2]",
                "['ab', 'cd']": "item 0 is str of length 2 at depth 0; expected lists 1 deep",
                "[['a', 1], ['c', 'd']]": "an element of item 0 is int; expected bytes or str",
            },
        ),
        ("bytes[-1, 2]", {"[[['a', 'b'], ['c']], []]": "item 0 is uneven: lists of lengths [1, 2] at depth 1"}),
        (
            "float32[-1, 3]",
            {
                "[np.zeros((1, 3)), np.zeros((1, 4))]": "item 1 has the shape [1, 4]; expected float32[-1, 3]",
                "np.zeros((3, 1, 3))": "predict returned 3 items for 2 queries",
                "[np.zeros((1, 3)), 'x']": "item 1 is str of length 1: <U1 does not cast to float32",
                "[np.zeros((1, 3)), None]": "item 1 is None (is a return missing?); expected an array, or a list of numbers",
            },
        ),
        (
            {"a": "int64[]", "b": "int64[]"},
            {
                "[[1, 2], [1, 2]]": "a list whose item 0 is list of length 2; expected a dict with the keys ['a', 'b'], "
                "or a tuple in this order",
                "[{'a': 1, 'b': 2}, {'a': 1}]": "a list whose item 1 is dict with the keys ['a']; expected a dict with the keys ['a', 'b']",
                "[(1, 2)]": "output 'a': predict returned an array of shape (1,); expected (2,)",
                "[]": "list of length 0; expected a dict with the keys ['a', 'b']",
                "([1, 2],)": "tuple of length 1; expected a dict",
                "{'a': [1, 2], 'c': [1, 2]}": "dict with the keys ['a', 'c']; the declared outputs are ['a', 'b']",
                "([1, 2], [1, 2, 3])": "output 'b': predict returned an array of shape (3,); expected (2,)",
            },
        ),
    ],
    ids=str,
)
def test_wrong_outputs(start, outputs, cases):
    gw = start(EVAL, "bytes[]", outputs)
    for expression, expected in cases.items():
        assert expected in rejected(gw, expression)
    gw.stop()


def test_wrong_confidences(start):
    gw = start("import xebec\nxebec.serve(lambda batch: eval(batch[0]), confidences=True)\n")
    assert "expected a pair (outputs, confidences)" in rejected(gw, "['a', 'b']")
    assert "the confidences: predict returned 1 items" in rejected(gw, "(['a', 'b'], [1])")
    assert "the confidences: got list of length 2; expected 2 numbers" in rejected(gw, "(['a', 'b'], ['x', 'y'])")
    gw.stop()


def test_wrong_accuracy(start):
    gw = start("import xebec\nxebec.serve(lambda batch: batch, accuracy=lambda: 'good')\n")
    gw.request(p.ACCURACY, 0, 0, 0, *gw.grant(256))
    r = gw.answer()
    assert r.status == p.BAD_OUTPUT and "expected 1 numbers" in gw.outputs(r)
    gw.stop()


@pytest.mark.parametrize(
    "statement, first_line",
    [
        ("raise ValueError('no good')", "ValueError: no good"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("recurse()", "RecursionError: maximum recursion depth exceeded"),
        ("raise Rude()", "Rude: <exception str() failed>"),
    ],
)
def test_a_model_that_raises(start, statement, first_line):
    source = f"""
import xebec
class Rude(Exception):
    def __str__(self):
        raise self
def recurse():
    recurse()
def predict(batch):
    if batch[0] == b"good":
        return batch
    {statement}
xebec.serve(predict)
"""
    gw = start(source)
    r, text = gw.predict([b"bad", b"x"])
    assert (r.status, r.queries) == (p.MODEL_ERROR, 2)
    assert text.splitlines()[0].replace("__main__.", "").startswith(first_line)
    assert statement.split(";")[-1].strip() in text
    assert gw.predict([b"good"])[1] == [b"good"]
    gw.stop()


def test_an_output_whose_conversion_raises(start):
    source = """
import xebec
class Odd:
    def __iter__(self):
        raise OSError("disk on fire")
xebec.serve(lambda batch: Odd())
"""
    gw = start(source)
    r, text = gw.predict([b""])
    assert r.status == p.BAD_OUTPUT and text.startswith("OSError: disk on fire")
    gw.stop()


def test_a_cast_that_raises(start):
    source = """
import xebec, numpy
numpy.seterr(over="raise")
xebec.serve(lambda batch: batch * 1e300)
"""
    gw = start(source, "float64[]", "float32[]")
    r, text = gw.predict(np.array([1.0]))
    assert r.status == p.BAD_OUTPUT and text.startswith("FloatingPointError: overflow")
    assert gw.predict(np.array([0.0]))[1].tolist() == [0]
    gw.stop()


def test_error_texts_are_cut_at_a_characters_end(start):
    gw = start("import xebec\ndef predict(batch): raise ValueError('é' * 100_000)\nxebec.serve(predict)\n", slab_bytes=1 << 20)
    prefix = len("ValueError: ")
    for cap in (0, 1, prefix + 1, prefix + 2, prefix + 3, 64):
        r, text = gw.predict([b""], out_cap=cap)
        assert r.status == p.MODEL_ERROR and r.need == 0
        assert text == "ValueError: "[:cap] + "é" * max(0, (cap - prefix) // 2)
    r, text = gw.predict([b""], out_cap=500_000)
    assert 16_000 < r.out_len <= 16 * 1024
    gw.stop()


def test_work_is_reported(start):
    gw = start("import time, xebec\nxebec.serve(lambda batch: time.sleep(0.01) or batch)\n")
    r, _ = gw.predict([b""])
    assert r.work_nanos >= 10_000_000
    gw.stop()


def test_padding_after_the_section_table_is_zero(start):
    gw = start("import xebec\nxebec.serve(lambda batch: batch)\n", "int64[]", "int64[]")
    gw.b.map[gw.slab :] = b"\xff" * (gw.size - gw.slab)
    r, got = gw.predict(np.array([5]))
    raw = gw.b.map[r.out_off : r.out_off + r.out_len]
    assert raw[16:64] == bytes(48) and got.tolist() == [5]
    gw.stop()


REFUSING = """
import numpy as np, xebec
def predict(batch):
    if batch == [b"raise"]:
        raise xebec.Error("raised")
    if b"all" in batch:
        raise xebec.Error("raised for all")
    rows = [xebec.Error(t.decode(), code="model_error") if t == b"bad" else np.full(3, i, "float32") for i, t in enumerate(batch)]
    return {"rows": rows, "words": [t.decode() for t in batch]}
xebec.serve(predict)
"""


def test_refused_queries(start):
    gw = start(REFUSING, "bytes[]", {"rows": "float32[-1]", "words": "bytes[]"})
    r, (rows, words, statuses, texts) = gw.predict([b"a", b"bad", b"c"])
    assert (r.status, r.flags) == (p.OK, p.FLAG_STATUSES)
    assert [row.tolist() for row in rows] == [[0, 0, 0], [], [2, 2, 2]]
    assert words == [b"a", b"", b"c"] and statuses == (0, 2, 0) and texts == ["", "bad", ""]
    r, (*_, statuses, texts) = gw.predict([b"raise"])
    assert (r.status, statuses, texts) == (p.OK, (1,), ["raised"])
    r, text = gw.predict([b"all", b"b"])
    assert r.status == p.MODEL_ERROR and "raised for all" in text
    gw.stop()


def test_refusals_need_version_2(start):
    gw = start(REFUSING, "bytes[]", {"rows": "float32[3]", "words": "bytes[]"}, version=1)
    r, text = gw.predict([b"a", b"bad"])
    assert r.status == p.MODEL_ERROR and "version 2" in text
    r, text = gw.predict([b"raise"])
    assert r.status == p.MODEL_ERROR and "raised" in text
    gw.stop()
