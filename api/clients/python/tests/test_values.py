"""What values become in a request. The gateway's part is in test_gateway.py."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from xebec_client import _wire
from xebec_client._wire import Options

NAN, INF = math.nan, math.inf


def sent(value):
    return json.loads(_wire.predict("f", value, Options(), None, False).body)["input"]


@pytest.mark.parametrize(
    "value, want",
    [
        ([1.0, NAN], [1.0, None]),
        ({"x": [[NAN, 2], (3, NAN)], "y": "NaN"}, {"x": [[None, 2], [3, None]], "y": "NaN"}),
        (NAN, None),
        ([np.float64("nan"), np.int64(3), b"x"], [None, 3, {"b64": "eA=="}]),
        ([NAN, np.array([1.5, NAN])], [None, [1.5, None]]),
        (pd.Series([1, NAN, 3]), [1, None, 3]),
        (pd.DataFrame({"kind": ["a"], "length": [NAN], "petals": [3]}).iloc[0], {"kind": "a", "length": None, "petals": 3}),
        ([pd.NA, pd.NaT, 1], [None, None, 1]),
    ],
)
def test_missing_numbers_are_null(value, want):
    assert sent(value) == want


@pytest.mark.parametrize(
    "value, where",
    [(INF, "input is inf"), ({"x": [1, [2, -INF]]}, r"input.x\[1\]\[1\] is -inf"), ([np.array([1, INF])], r"input\[0\]\[1\] is inf")],
)
def test_infinities_are_refused_with_their_place(value, where):
    with pytest.raises(ValueError, match=where + ": JSON has no infinities"):
        sent(value)


def test_a_value_that_contains_itself():
    value = [NAN]
    value.append(value)
    with pytest.raises(ValueError):
        sent(value)


def test_a_data_frame_is_a_batch():
    frame = pd.DataFrame({"kind": ["a", None], "length": [5.1, NAN], "petals": [3, 4]}, index=[7, 9])
    body = json.loads(_wire.predict_batch("f", frame, Options(slo_ms=5, parameters={"k": 1})).body)
    assert body == {
        "dataframe_split": {"columns": ["kind", "length", "petals"], "data": [["a", 5.1, 3], [None, None, 4]]},
        "parameters": {"k": 1},
    }
    with pytest.raises(TypeError, match="column 0 of the DataFrame: expected names that are strings"):
        _wire.predict_batch("f", pd.DataFrame([[1, 2]]), Options())
    with pytest.raises(TypeError, match="a DataFrame is a batch"):
        sent(frame)
