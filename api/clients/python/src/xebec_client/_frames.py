"""pandas' tables as JSON. pandas is imported only by programs that use it."""

from __future__ import annotations

import sys
from typing import Any


def is_frame(value: Any) -> bool:
    """Reports whether value is a DataFrame. Where pandas was never imported there are none."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def is_series(value: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.Series)


def is_missing(value: Any) -> bool:
    """Reports whether value is pandas' NA or NaT."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def split(frame: Any) -> dict[str, Any]:
    """A DataFrame as columns and rows. Missing values are null; the index is left out. Raises TypeError if a column's name is not a string."""
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"column {name!r} of the DataFrame: expected names that are strings, those of the model's inputs")
    table = frame.astype(object)
    return {"columns": names, "data": table.where(frame.notna(), None).to_numpy().tolist()}


def row(series: Any) -> dict[str, Any] | list[Any]:
    """A row of a DataFrame as a dict by column, or a column of it as a list."""
    values = series.astype(object).where(series.notna(), None)
    if all(isinstance(name, str) for name in series.index):
        return dict(values.to_dict())
    return list(values.tolist())
