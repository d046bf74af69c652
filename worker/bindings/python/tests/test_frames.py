"""xebec.frame: the batch as a frame of pandas and polars, without a gateway."""

import numpy as np
import pandas
import polars
import pytest

import xebec

INPUTS = {"age": "float64[]", "visits": "int32[]", "city": "string[]", "member": "bool[]"}
BATCH = {"age": [40.5, float("nan")], "visits": [3, 0], "city": ["Köln", "Lyon"], "member": [True, False]}


def test_predict_gets_a_frame_of_pandas():
    seen = []

    @xebec.frame
    def predict(df):
        assert list(df.columns) == list(INPUTS) and len(df) == 2
        assert [df[c].dtype for c in ("age", "visits", "member")] == [np.float64, np.int32, bool]
        assert df["city"].tolist() == ["Köln", "Lyon"] and df["age"].isna().tolist() == [False, True]
        for name in ("age", "visits", "member"):
            column = df[name].to_numpy()
            assert not column.flags.writeable and column.base is not None  # a view of the batch's block
        seen.append(df["age"].fillna(0) + df["visits"])
        return seen[0]

    got = xebec.try_predict(predict, BATCH, inputs=INPUTS, outputs="float64[]")
    assert got.tolist() == [43.5, 0]
    mine = pandas.DataFrame({"age": [1.0, 2.0], "visits": np.int32([1, 1]), "city": ["a", "b"], "member": [True, True]})
    with pytest.raises(AssertionError):  # the function is unchanged: this frame is no batch of the test
        predict(mine)


def test_numeric_columns_are_not_copied():
    from xebec._frames import maker
    from xebec._tensors import TensorSpec

    arrays = [np.arange(1000.0), np.arange(1000, dtype=np.int32)]
    specs = [TensorSpec("x", "float64", ()), TensorSpec("n", "int32", ())]
    df = maker(xebec.frame(lambda df: df), specs)(arrays)
    assert all(np.shares_memory(df[s.name].to_numpy(), a) for s, a in zip(specs, arrays))


def test_predict_gets_a_frame_of_polars():
    @xebec.frame(library="polars")
    def predict(df):
        assert isinstance(df, polars.DataFrame) and df.columns == list(INPUTS) and df.height == 2
        assert df.schema["visits"] == polars.Int32 and df["city"].to_list() == ["Köln", "Lyon"]
        return df.select(sum=polars.col("age").fill_nan(0) + polars.col("visits"), town=polars.col("city").str.to_uppercase())

    got = xebec.try_predict(predict, BATCH, inputs=INPUTS, outputs={"sum": "float64[]", "town": "string[]"})
    assert got["sum"].tolist() == [43.5, 0] and got["town"] == ["KÖLN", "LYON"]


@pytest.mark.parametrize("result", ["frame", "dict", "tuple"])
def test_outputs_of_several_kinds(result):
    @xebec.frame
    def predict(df):
        out = pandas.DataFrame({"label": df["city"].str.upper(), "score": df["visits"] / 2})
        return {"frame": out, "dict": dict(out), "tuple": (out["label"], out["score"])}[result]

    got = xebec.try_predict(predict, BATCH, inputs=INPUTS, outputs={"label": "string[]", "score": "float32[]"})
    assert got["label"] == ["KÖLN", "LYON"] and got["score"].tolist() == [1.5, 0]


def test_one_column_and_contexts():
    @xebec.frame
    def predict(df, contexts):
        return [f"{c} {x}" for c, x in zip(contexts, df["x"])]

    assert xebec.try_predict(predict, [1, 2], inputs={"x": "int64[]"}, outputs="string[]", contexts=["a", "b"], text=True) == ["a 1", "b 2"]


def test_what_is_wrong_is_said(monkeypatch):
    with pytest.raises(TypeError, match=r"the input 'x' is float32\[3\]; expected scalars"):
        xebec.try_predict(xebec.frame(lambda df: df), [[1, 2, 3]], inputs={"x": "float32[3]"}, outputs="int64[]")
    with pytest.raises(xebec.BadOutput, match=r"the declared outputs are \['a', 'b'\]"):
        xebec.try_predict(xebec.frame(lambda df: df), BATCH, inputs=INPUTS, outputs={"a": "int64[]", "b": "int64[]"})
    with pytest.raises(ValueError, match="expected one of pandas, polars"):
        xebec.frame(library="cudf")
    with pytest.raises(TypeError, match="is no function"):
        xebec.frame("pandas")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        xebec.try_predict(xebec.frame(lambda df: df, library="polars"), [1], inputs={"x": "int64[]"}, outputs="int64[]")


def test_try_predict_takes_a_frame():
    @xebec.frame
    def predict(df):
        return df["city"] + df["visits"].map(str)

    mine = pandas.DataFrame(BATCH, index=[7, 3])
    assert xebec.try_predict(predict, mine, inputs=INPUTS, outputs="string[]") == ["Köln3", "Lyon0"]
    assert xebec.try_predict(predict, polars.DataFrame(BATCH), inputs=INPUTS, outputs="string[]") == ["Köln3", "Lyon0"]


@pytest.mark.parametrize("kind", ["series", "frame", "dict", "tuple"])
def test_rows_answer_the_query_whose_index_they_have(kind):
    outputs = "float64[]" if kind == "series" else {"price": "float64[]", "label": "string[]"}

    @xebec.frame
    def predict(df):
        df = df.sort_values("price")
        out = pandas.DataFrame({"price": df["price"] * 2, "label": df["price"].map("{:.0f}".format)})
        if kind == "series":
            return out["price"]
        return {"frame": out, "dict": dict(out.items()), "tuple": (out["price"], out["label"])}[kind]

    got = xebec.try_predict(predict, [3.0, 1.0, 2.0], inputs={"price": "float64[]"}, outputs=outputs)
    if kind == "series":
        assert got.tolist() == [6, 2, 4]
    else:
        assert got["price"].tolist() == [6, 2, 4] and got["label"] == ["3", "1", "2"]


@pytest.mark.parametrize("index", [["a", "b", "c"], [1, 2, 3], [0, 0, 1], [0, "a", 1.5], [2.5, 1.0, 0.0]])
def test_rows_of_another_index_are_refused(index):
    @xebec.frame
    def predict(df):
        return df["price"].set_axis(index)

    with pytest.raises(xebec.BadOutput, match=r"expected that of the batch, 0 to 2 in any order.*reset_index"):
        xebec.try_predict(predict, [3.0, 1.0, 2.0], inputs={"price": "float64[]"}, outputs="float64[]")
    in_order = xebec.frame(lambda df: predict(df).reset_index(drop=True))
    assert xebec.try_predict(in_order, [3.0, 1.0, 2.0], inputs={"price": "float64[]"}, outputs="float64[]").tolist() == [3, 1, 2]
