"""What predict receives and what becomes of its result, through real worker processes on both engines."""

import numpy as np
import pytest

from xebec import _protocol as p

IDENTITY = "import xebec\nxebec.serve(lambda batch: batch)\n"

SAMPLES = {
    "bool": [True, False, True],
    "uint8": [0, 1, 255],
    "uint16": [0, 1, 65535],
    "uint32": [0, 1, 2**32 - 1],
    "uint64": [0, 1, 2**64 - 1],
    "int8": [-128, 0, 127],
    "int16": [-(2**15), 0, 2**15 - 1],
    "int32": [-(2**31), 0, 2**31 - 1],
    "int64": [-(2**63), 0, 2**63 - 1],
    "float16": [-1.5, 0, float("inf")],
    "float32": [-1.5, 0, float("nan")],
    "float64": [-1.5e300, 0, 1 / 3],
}


def test_every_numeric_type_there_and_back(start):
    every = {name: f"{name}[2]" for name in SAMPLES}
    columns = [np.array([[v, v] for v in values], dtype=name) for name, values in SAMPLES.items()]
    gw = start("import xebec\nxebec.serve(lambda batch: {k: v for k, v in batch.items() if str(v.dtype) == k})\n", every, every)
    r, outputs = gw.predict(*columns)
    assert r.status == p.OK, outputs
    for sent, got in zip(columns, outputs):
        assert got.dtype == sent.dtype
        np.testing.assert_array_equal(got, sent)
    gw.stop()


@pytest.mark.parametrize("shape", ["[]", "[1]", "[2, 3]", "[0]", "[4, 0, 2]"])
def test_fixed_shapes(start, shape):
    dims = tuple(int(d) for d in shape.strip("[]").split(",") if d)
    sent = np.arange(5 * np.prod(dims, dtype=int), dtype="float32").reshape((5, *dims))
    gw = start(IDENTITY, "float32" + shape, "float32" + shape)
    r, got = gw.predict(sent)
    assert r.status == p.OK, got
    np.testing.assert_array_equal(got, sent)
    gw.stop()


def test_the_input_is_one_contiguous_read_only_view(start):
    gw = start(
        """
import xebec
def predict(batch):
    assert batch.shape == (3, 4) and batch.dtype == "float32", batch
    assert batch.flags.c_contiguous and batch.flags.aligned and not batch.flags.owndata
    batch[0, 0] = 1
xebec.serve(predict)
""",
        "float32[4]",
    )
    r, text = gw.predict(np.zeros((3, 4), "float32"))
    assert r.status == p.MODEL_ERROR
    assert text.startswith("ValueError: assignment destination is read-only\nTraceback")
    assert "batch[0, 0] = 1" in text and "_worker.py" not in text
    gw.stop()


def test_ragged_numbers(start):
    sent = [np.arange(6, dtype="float32").reshape(2, 3), np.zeros((0, 3), "float32"), np.ones((1, 3), "float32")]
    gw = start(
        """
import xebec
def predict(batch):
    assert isinstance(batch, list) and not any(x.flags.writeable for x in batch)
    return [x.T[:1] * 2 for x in batch]
xebec.serve(predict)
""",
        "float32[-1, 3]",
        "float64[1, -1]",
    )
    r, got = gw.predict(sent)
    assert r.status == p.OK, got
    for s, g in zip(sent, got):
        np.testing.assert_array_equal(g, s.T[:1] * 2)
    gw.stop()


def test_an_empty_list_is_an_empty_item(start):
    gw = start("import xebec\nxebec.serve(lambda batch: [[], [[1, 2, 3]]])\n", "bytes[]", "float32[-1, 3]")
    r, got = gw.predict([b"", b""])
    assert r.status == p.OK, got
    assert [g.shape for g in got] == [(0, 3), (1, 3)]
    gw.stop()


def test_an_array_whose_rows_agree_is_a_ragged_output(start):
    gw = start(IDENTITY, "int32[3]", "int32[-1]")
    r, got = gw.predict(np.arange(6, dtype="int32").reshape(2, 3))
    assert r.status == p.OK, got
    assert [g.tolist() for g in got] == [[0, 1, 2], [3, 4, 5]]
    gw.stop()


def test_bytes(start):
    gw = start("import xebec\nxebec.serve(lambda batch: [x + b'!' if type(x) is bytes else 1 for x in batch])\n")
    sent = [b"", b"\xff\0", "é".encode(), b"x" * 1000]
    assert gw.predict(sent)[1] == [x + b"!" for x in sent]
    gw.stop()


def test_text(start):
    gw = start("import xebec\nxebec.serve(lambda batch: [x.upper() for x in batch], text=True)\n")
    r, got = gw.predict(["é".encode(), b"", b"a\xffb"])
    assert got == ["É".encode(), b"", "A\ufffdB".encode()], "broken text is patched, so that it does not fail the rest of the batch"
    gw.stop()


def test_bytes_of_a_higher_rank_are_nested_lists(start):
    source = """
import xebec
def predict(batch):
    assert batch == [[[b"a", b"bc"], [b"", b"d"]], []], batch
    return batch
xebec.serve(predict)
"""
    gw = start(source, "bytes[-1, 2]", "bytes[-1, -1]")
    gw.submit([[[["a", "bc"], ["", "d"]], []]], 2)
    r = gw.answer()
    assert r.status == p.OK, gw.outputs(r)
    assert gw.outputs(r) == [[[b"a", b"bc"], [b"", b"d"]], []]
    gw.stop()


def test_outputs_of_strings_in_numpy_arrays(start):
    gw = start("import xebec, numpy\nxebec.serve(lambda batch: numpy.array(['cat', 'dog'])[batch])\n", "int64[]", "bytes[]")
    assert gw.predict(np.array([1, 0]))[1] == [b"dog", b"cat"]
    gw.stop()


def test_several_inputs_and_outputs_by_name_or_in_order(start):
    source = """
import xebec
def predict(batch):
    assert list(batch) == ["image", "caption"]
    size = [len(c) for c in batch["caption"]]
    mean = batch["image"].mean(axis=1)
    return {"size": size, "mean": mean} if size[0] else (mean, size)
xebec.serve(predict)
"""
    gw = start(source, {"image": "uint8[4]", "caption": "bytes[]"}, {"mean": "float32[]", "size": "int64[]"})
    for captions in (["", "abc"], ["a", "b"]):
        image = np.array([[0, 1, 2, 3], [4, 4, 4, 4]], "uint8")
        r, got = gw.predict(image, captions)
        assert r.status == p.OK, got
        assert got[0].tolist() == [1.5, 4.0] and got[1].tolist() == [len(c) for c in captions]
    gw.stop()


def test_outputs_are_cast_as_numpy_calls_same_kind(start):
    cases = ["numpy.array([1, 2], '>i8')", "numpy.array([[1, 9], [2, 9]])[:, 0]", "[True, 2]", "[numpy.float16(1), 2]", "(1, 2)"]
    gw = start("import xebec, numpy\nxebec.serve(lambda batch: eval(batch[0]))\n", "bytes[]", "float32[]")
    for case in cases:
        r, got = gw.predict([case] * 2)
        assert r.status == p.OK, (case, got)
        assert got.tolist() == [1.0, 2.0]
    gw.stop()


def test_python_ints_fit_where_their_values_do(start):
    gw = start("import xebec\nxebec.serve(lambda batch: eval(batch[0]))\n", "bytes[]", "uint8[]")
    assert gw.predict([b"[0, 255]", b""])[1].tolist() == [0, 255]
    r, text = gw.predict([b"[0, 256]", b""])
    assert r.status == p.BAD_OUTPUT and "outside the range of uint8" in text
    gw.stop()


@pytest.mark.parametrize(
    "outputs, fits, wrong",
    [
        ("int32[]", "np.array([2**31 - 1, -(2**31)])", ["np.array([2**31, 0])", "np.array([0, -(2**40)])", "[2**40, 1]"]),
        ("int64[]", "np.array([2**63 - 1, 0], 'uint64')", ["np.array([2**63, 0], 'uint64')"]),
        ("uint8[]", "np.array([255, 0], 'uint64')", ["np.array([256, 0], 'uint64')", "[256, 0]", "[2**70, 0]"]),
        ("int16[-1]", "[np.array([1]), np.array([], int)]", ["[np.array([40000]), [1]]", "np.array([[1], [40000]])"]),
    ],
    ids=["int32", "int64", "uint8", "ragged"],
)
def test_integers_are_not_wrapped(start, outputs, fits, wrong):
    gw = start("import xebec, numpy as np\nxebec.serve(lambda batch: eval(batch[0]))\n", "bytes[]", outputs)
    r, got = gw.predict([fits] * 2)
    assert r.status == p.OK and [np.asarray(x).tolist() for x in got] == [np.asarray(x).tolist() for x in eval(fits)]
    for case in wrong:
        r, text = gw.predict([case] * 2)
        assert r.status == p.BAD_OUTPUT and f"outside the range of {outputs.split('[')[0]}" in text, (case, text)
    gw.stop()


def test_masked_arrays(start):
    """The value behind a mask is not a prediction."""
    source = "import xebec, numpy as np\nxebec.serve(lambda batch: eval(batch[0]))\n"
    for outputs, shape in (("float32[]", "(2,)"), ("float32[-1]", "(2, 1)")):
        gw = start(source, "bytes[]", outputs)
        r, got = gw.predict([f"np.ma.array([1.0, 2.0], mask=[0, 0]).reshape({shape})"] * 2)
        assert r.status == p.OK and np.ravel(got).tolist() == [1.0, 2.0]
        r, text = gw.predict([f"np.ma.array([1.0, 2.0], mask=[0, 1]).reshape({shape})"] * 2)
        assert r.status == p.BAD_OUTPUT and "masked elements, which have no value: use .filled(VALUE)" in text, text
        gw.stop()


def test_contexts_and_confidences(start):
    source = """
import xebec
def predict(batch, contexts):
    return [c.decode() + str(len(x)) for x, c in zip(batch, contexts)], [0.5, None][:len(batch)]
xebec.serve(predict, contexts=True, confidences=True)
"""
    gw = start(source, contexts=True)
    assert gw.hello.capabilities & ~(p.CAN_RING | p.CAN_LINES) == p.CAN_CONTEXTS | p.CAN_CONFIDENCES
    r, (outputs, confidences) = gw.predict([b"a", b"bb"], contexts=[b"ann:", b""])
    assert r.flags == p.FLAG_CONFIDENCES
    assert outputs == [b"ann:1", b"2"]
    assert confidences[0] == 0.5 and np.isnan(confidences[1])
    gw.stop()


def test_contexts_that_the_model_did_not_ask_for_and_those_it_does_not_get(start):
    gw = start("import xebec\nxebec.serve(lambda batch: batch)\n", contexts=True)
    assert gw.predict([b"a"], contexts=[b"ann"])[1] == [b"a"]
    gw.stop()
    gw = start("import xebec\nxebec.serve(lambda batch, contexts: [repr(c) for c in contexts], contexts=True)\n")
    assert gw.predict([b"a"])[1] == [b"b''"]
    gw.stop()


def test_a_model_may_have_nothing_to_say_of_its_confidence(start):
    gw = start("import xebec\nxebec.serve(lambda batch: (batch, None), confidences=True)\n")
    r, got = gw.predict([b"a"])
    assert r.flags == 0 and got == [b"a"]
    gw.stop()


def test_feedback_and_accuracy(start):
    source = """
import xebec
seen = []
def feedback(batch, labels, contexts):
    assert len(batch) == len(labels) == len(contexts)
    if labels[0] == "raise":
        raise KeyError("no such label")
    seen.extend(zip(batch, labels, contexts))
def accuracy():
    return len(seen) / 4
xebec.serve(lambda batch, contexts: [repr(seen)], feedback=feedback, accuracy=accuracy, contexts=True, text=True)
"""
    gw = start(source, contexts=True)
    assert gw.hello.capabilities & ~(p.CAN_RING | p.CAN_LINES) == p.CAN_CONTEXTS | p.CAN_FEEDBACK | p.CAN_ACCURACY
    gw.submit([["x", "é"]], 2, ["ann", "bob"], 0, p.FEEDBACK, ['{"label": 1}', "null"])
    r = gw.answer()
    assert (r.kind, r.status, r.queries, r.out_len) == (p.FEEDBACK, p.OK, 2, 0)
    assert gw.predict(["?"], contexts=[""])[1] == ["[('x', {'label': 1}, 'ann'), ('é', None, 'bob')]".encode()]

    gw.request(p.ACCURACY, 0, 0, 0, *gw.grant(128))
    r = gw.answer()
    assert (r.kind, r.status, r.queries, r.out_len) == (p.ACCURACY, p.OK, 0, 72)
    assert np.frombuffer(gw.b.map, "float64", 1, r.out_off + 64)[0] == 0.5

    for bad in ('"raise"', "[" * 100_000):
        gw.submit([["x"]], 1, ["ann"], 4096, p.FEEDBACK, [bad])
        r = gw.answer()
        assert r.status == p.MODEL_ERROR
        assert "no such label" in gw.outputs(r) or "RecursionError" in gw.outputs(r)
    gw.stop()


def test_kinds_that_the_model_does_not_have(start):
    gw = start(IDENTITY)
    assert gw.hello.capabilities & ~(p.CAN_RING | p.CAN_LINES) == 0
    gw.submit([["x"]], 1, None, 64, p.FEEDBACK, ["1"])
    r = gw.answer()
    assert (r.kind, r.status, r.queries, r.out_len) == (p.FEEDBACK, p.UNSUPPORTED, 1, 0)
    gw.request(p.ACCURACY)
    r = gw.answer()
    assert (r.kind, r.status, r.queries, r.out_len) == (p.ACCURACY, p.UNSUPPORTED, 0, 0)
    gw.stop()


def test_numpy_is_not_imported_for_bytes(start):
    gw = start("import sys, xebec\nxebec.serve(lambda batch: [str('numpy' in sys.modules) for _ in batch], accuracy=lambda: 1)\n")
    assert gw.predict([b""])[1] == [b"False"]
    gw.stop()
