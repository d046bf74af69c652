"""try_predict reports what the gateway would report."""

import numpy as np
import pytest

import xebec


def test_predict_sees_what_it_will_see_when_served():
    def predict(batch):
        assert batch.dtype == np.float32 and batch.shape == (2, 3) and not batch.flags.writeable
        return batch.sum(axis=1)

    got = xebec.try_predict(predict, [[1, 2, 3], [4, 5, 6]], inputs="float32[3]", outputs="float64[]")
    assert got.dtype == np.float64 and got.tolist() == [6, 15]


def test_several_inputs_and_outputs():
    def predict(batch):
        return {"upper": [s.upper() for s in batch["text"]], "double": batch["x"] * 2}

    got = xebec.try_predict(
        predict,
        {"x": [1, 2], "text": ["a", "b"]},
        inputs={"x": "int64[]", "text": "string[]"},
        outputs={"upper": "bytes[]", "double": "int64[]"},
        text=True,
    )
    assert got["upper"] == [b"A", b"B"] and got["double"].tolist() == [2, 4]


def test_contexts_and_confidences():
    got = xebec.try_predict(
        lambda batch, contexts: ([c + x for x, c in zip(batch, contexts)], [0.5]),
        [b"x"], inputs="bytes[]", outputs="bytes[]", contexts=["ann:"], confidences=True,
    )  # fmt: skip
    assert got == ([b"ann:x"], [0.5])
    nothing = xebec.try_predict(lambda b: (b, None), [b"x"], inputs="bytes[]", outputs="bytes[]", confidences=True)
    assert nothing == ([b"x"], None)


def test_what_is_wrong_is_said():
    with pytest.raises(xebec.BadOutput, match=r"an array of shape \(1,\); expected \(2,\)"):
        xebec.try_predict(lambda b: [1], [1, 2], inputs="int64[]", outputs="int64[]")
    with pytest.raises(ZeroDivisionError):
        xebec.try_predict(lambda b: 1 / 0, [1, 2], inputs="int64[]", outputs="int64[]")
    with pytest.raises(TypeError, match=r"the batch has an array of shape \(2,\); expected \(2, 3\)"):
        xebec.try_predict(len, [1, 2], inputs="int64[3]", outputs="int64[]")
    with pytest.raises(TypeError, match=r"expected a dict with the keys \['a', 'b'\]"):
        xebec.try_predict(len, [1, 2], inputs={"a": "int64[]", "b": "int64[]"}, outputs="int64[]")
    with pytest.raises(TypeError, match=r"expected a dict with the keys \['a'\]"):
        xebec.try_predict(len, {"b": [1]}, inputs={"a": "int64[]"}, outputs="int64[]")
    for wrong in ("float33[2]", "float32", "int64[-2]", "int64[x]", "[]"):
        with pytest.raises(ValueError, match="expected a type and a shape such as"):
            xebec.try_predict(len, [1], inputs=wrong, outputs="int64[]")


def test_a_refused_query_is_its_output():
    def predict(batch):
        return [xebec.Error("negative") if x < 0 else x**0.5 for x in batch.tolist()]

    got = xebec.try_predict(predict, [4, -4, 9], inputs="float64[]", outputs="float64[]")
    assert got[0] == 2 and got[2] == 3
    assert isinstance(got[1], xebec.Error) and str(got[1]) == "negative" and got[1].code == "invalid_input"


def test_several_outputs_query_by_query():
    """With several outputs, predict may return a list with a dict, a tuple or an Error for each query."""

    def predict(batch):
        return [(7, [1.5, 2]), {"b": [0, 1], "a": 8}, xebec.Error("no")][: len(batch)]

    outputs = {"a": "int64[]", "b": "float32[2]"}
    got = xebec.try_predict(predict, [1, 2], inputs="int64[]", outputs=outputs)
    assert got["a"].tolist() == [7, 8] and got["b"].tolist() == [[1.5, 2], [0, 1]]
    got = xebec.try_predict(predict, [1, 2, 3], inputs="int64[]", outputs=outputs)
    assert list(got["a"])[:2] == [7, 8] and isinstance(got["a"][2], xebec.Error) and isinstance(got["b"][2], xebec.Error)


def test_async_predict():
    async def predict(batch):
        return batch * 2

    assert xebec.try_predict(predict, [1, 2], inputs="int64[]", outputs="int64[]").tolist() == [2, 4]


def test_errors_have_known_codes():
    with pytest.raises(ValueError, match="expected one of invalid_input, model_error"):
        xebec.Error("x", code="nope")

@pytest.mark.parametrize(
    "values, outputs, want",
    [
        ([1, 2, 3], "int64[]", [1, 2, 3]),
        ([1.0, 2.5, 3], "float32[]", [1, 2.5, 3]),
        ([1, 2, 3], "uint8[]", [1, 2, 3]),
        ([True, False, True], "bool[]", [1, 0, 1]),
    ],
)
def test_arrays_of_objects_that_are_numbers(values, outputs, want):
    got = xebec.try_predict(lambda batch: np.array(values, dtype=object), np.zeros(3), inputs="float64[]", outputs=outputs)
    assert got.tolist() == want


@pytest.mark.parametrize("values", [[1, 2, 2**70], [1, 2, 300]])
def test_arrays_of_objects_that_do_not_fit(values):
    with pytest.raises(xebec.BadOutput, match="outside the range of uint8"):
        xebec.try_predict(lambda batch: np.array(values, dtype=object), np.zeros(3), inputs="float64[]", outputs="uint8[]")


def test_parameters_and_calls():
    def predict(batch, contexts, parameters, calls):
        return [f"{x} {c} {p['k']} {call.request_id}" for x, c, p, call in zip(batch, contexts, parameters, calls)]

    given = dict(contexts=["ann", "bob"], parameters=[{"k": "é"}, {"k": 2}], calls=[xebec.Call(request_id="r-1"), xebec.Call()])
    got = xebec.try_predict(predict, [1, 2], inputs="int64[]", outputs="string[]", text=True, **given)
    assert got == ["1 ann é r-1", "2 bob 2 "]
    with pytest.raises(TypeError, match="parameters has 1 items for 2 queries"):
        xebec.try_predict(predict, [1, 2], inputs="int64[]", outputs="string[]", **{**given, "parameters": [{}]})

    def words(batch, parameters):
        yield from range(parameters[0]["n"])

    assert xebec.try_predict(words, ["x"], inputs="bytes[]", outputs="int64[]", parameters=[{"n": 2}]) == [0, 1]
