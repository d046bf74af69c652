"""Numeric models without numpy: memoryviews in, lists and buffers out."""

import array

import pytest

from xebec import BadOutput
from xebec import _protocol as p
from xebec._blocks import codecs
from xebec._tensors import parse_spec

WITHOUT = "import sys\nsys.modules['numpy'] = None  # as if it were not installed\nimport xebec\n"


def codec(spec):
    return codecs([parse_spec("x", spec)], "output", numpy=False)[0]


def written(spec, value, n):
    c = codec(spec)
    size, prepared = c.prepare(value, n)
    raw = bytearray(size)
    c.write(raw, 0, prepared, n)
    return bytes(raw)


def test_memoryviews_in_and_lists_out(start):
    source = """
def predict(batch):
    assert isinstance(batch, memoryview) and batch.shape == (2, 3) and batch.format == "f" and batch.readonly
    return [sum(row) for row in batch.tolist()]
xebec.serve(predict)
"""
    gw = start(WITHOUT + source, "float32[3]", "float64[]")
    r, got = gw.predict([[0.5, 1, 2], [3, 4, 5]])
    assert r.status == p.OK, got
    assert got.tolist() == [3.5, 12]
    gw.stop()


def test_ragged_there_and_back(start):
    gw = start(WITHOUT + "xebec.serve(lambda batch: [x.tolist() for x in batch])\n", "int32[-1, 2]", "int64[-1, 2]")
    r, got = gw.predict([[[1, 2]], [[3, 4], [5, 6]], []])
    assert r.status == p.OK, got
    assert [g.tolist() for g in got] == [[[1, 2]], [[3, 4], [5, 6]], []]
    gw.stop()


def test_views_out(start):
    gw = start(WITHOUT + "xebec.serve(lambda batch: batch)\n", "uint16[2]", "uint16[2]")
    assert gw.predict([[1, 2], [3, 65535]])[1].tolist() == [[1, 2], [3, 65535]]
    gw.stop()


def test_the_input_is_read_only(start):
    gw = start(WITHOUT + "def predict(batch): batch[0] = 1\nxebec.serve(predict)\n", "int64[]", "int64[]")
    r, text = gw.predict([1])
    assert r.status == p.MODEL_ERROR and text.startswith("TypeError: cannot modify read-only memory")
    gw.stop()


def test_what_is_taken():
    ones = written("int64[2]", [[1, 1], [1, 1]], 2)
    assert written("int64[2]", array.array("q", [1] * 4), 2) == ones
    assert written("int64[2]", array.array("l", [1] * 4), 2) == ones, "l is int64 by another name"
    assert written("float64[]", [1, 2.5, True], 3) == array.array("d", [1, 2.5, 1]).tobytes()
    assert written("bool[]", [True, False], 2) == b"\1\0"
    assert written("float16[1]", [[1.0]], 1) == b"\x00\x3c"


@pytest.mark.parametrize(
    "spec, value, n, words",
    [
        ("int64[]", [1.5, 2], 2, "contains float; expected elements of format 'q'"),
        ("int64[]", [1, 2, 3], 2, "values of shape (3,); expected (2,): 2 items of int64[]"),
        ("uint8[]", [1, 256], 2, "a value out of range"),
        ("bool[]", [1, 0], 2, "contains int; expected elements of format '?'"),
        ("float32[2]", [[1, 2], [3]], 2, "is uneven"),
        ("float32[2]", array.array("d", [1, 2]), 1, "elements of format 'd'; expected 'f'"),
        ("float32[2]", array.array("f", [1, 2, 3]), 1, "values of shape (3,); expected (1, 2)"),
        ("float32[]", None, 1, "None (is a return missing?)"),
        ("float32[]", b"abcd", 1, "bytes of length 4"),
        ("float32[-1, 2]", [[[1, 2, 3]]], 1, "item 0 has the shape [1, 3]; expected float32[-1, 2]"),
        ("float32[-1]", [[1]], 2, "predict returned 1 items for 2 queries"),
    ],
)
def test_what_is_refused(spec, value, n, words):
    with pytest.raises(BadOutput) as e:
        codec(spec).prepare(value, n)
    assert words in str(e.value)


def test_views_have_the_shape_and_no_dimension_0():
    raw = bytes(range(24))
    assert codec("uint8[2, 3]").read(raw, 0, 24, 4).shape == (4, 2, 3)
    assert codec("uint32[]").read(raw, 0, 24, 6).tolist()[0] == 0x03020100
    assert codec("uint8[0]").read(raw, 0, 0, 4).nbytes == 0
    assert codec("float16[]").read(b"\x00\x3c", 0, 2, 1).itemsize == 2
