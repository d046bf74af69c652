"""Frames: the batch as a DataFrame of pandas or polars, one column for each input.

Imported only for a model with :func:`xebec.frame`. ``_model`` calls it where it turns values into arguments and results
into values.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Optional, TypeVar, overload

from ._tensors import BadOutput, TensorSpec

LIBRARIES = ("pandas", "polars")
_MARK = "_xebec_frame"

Predict = TypeVar("Predict", bound=Callable[..., Any])


@overload
def frame(predict: Predict, *, library: str = "pandas") -> Predict: ...


@overload
def frame(predict: None = None, *, library: str = "pandas") -> Callable[[Predict], Predict]: ...


def frame(predict: Any = None, *, library: str = "pandas") -> Any:
    """Marks predict as one that takes a DataFrame: ``@xebec.frame``, or ``@xebec.frame(library="polars")``.

    For a model whose inputs are all scalars. The frame has a column for each input, in the declared order, and a row
    for each query. Numeric columns of pandas are views of what predict would get as arrays: read-only, without a copy,
    and valid until predict returns. Text is str. predict may return a frame with the outputs' names as columns, a
    series for a single output, or what it could return without frames. Rows of pandas answer the query whose index
    they have, so predict may sort them; an index of other labels is an error. Rows of polars answer by their order. The
    function itself is unchanged: it can be called with a frame of your own.
    """
    if library not in LIBRARIES:
        raise ValueError(f"xebec.frame: the library is {library!r}; expected one of {', '.join(LIBRARIES)}")

    def mark(function: Any) -> Any:
        if not callable(function):
            raise TypeError(f"xebec.frame: {function!r} is no function; write @xebec.frame or @xebec.frame(library=…)")
        setattr(function, _MARK, library)
        return function

    return mark if predict is None else mark(predict)


def maker(predict: Any, inputs: Sequence[TensorSpec]) -> Optional[Callable[[list[Any]], Any]]:
    """What makes a frame of the inputs' values, or None if predict takes no frame. Raises TypeError for inputs that are
    no columns, and ImportError without the library."""
    library = getattr(predict, _MARK, None)
    if library is None:
        return None
    names = [spec.name for spec in inputs]
    for spec in inputs:
        if spec.shape:
            raise TypeError(f"xebec.frame: the input {spec.name!r} is {spec}; expected scalars, shape: [], which are columns")
    try:
        module = importlib.import_module(library)
    except ImportError as e:
        raise ImportError(f"xebec.frame: {library} is not installed in the model's environment: pip install {library}") from e
    if library == "polars":
        return lambda values: module.DataFrame(dict(zip(names, values)))
    return lambda values: module.DataFrame(dict(zip(names, values)), copy=False)


def unframed(returned: Any) -> Any:
    """predict's result without frames and series: a dict of columns, or one column, in the order of the queries."""
    if hasattr(returned, "reindex"):
        returned = _in_order(returned)
    if hasattr(returned, "columns") and hasattr(returned, "__getitem__"):
        return {str(name): _column(returned[name]) for name in returned.columns}
    if isinstance(returned, dict):
        return {name: _column(value) for name, value in returned.items()}
    if isinstance(returned, tuple):
        return tuple(_column(value) for value in returned)
    return _column(returned)


def _column(value: Any) -> Any:
    """A series as an array or, if its elements are no numbers, as a list."""
    if not (hasattr(value, "to_numpy") and hasattr(value, "to_list")):
        return value
    if hasattr(value, "reindex"):
        value = _in_order(value)
    array = value.to_numpy()
    return array if array.dtype.kind in "biuf" else value.to_list()


def _in_order(rows: Any) -> Any:
    """A frame or series of pandas in the order of the queries, which its index says: the batch's has 0 to n − 1."""
    index, n = rows.index, len(rows)
    if getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1:  # a RangeIndex, as nearly always
        return rows
    labels = index.tolist()
    if labels == list(range(n)):
        return rows
    try:
        if sorted(labels) == list(range(n)):
            return rows.sort_index()
    except TypeError:
        pass  # labels of several types
    shown = ", ".join(map(repr, labels[:3])) + (", …" if n > 3 else "")
    raise BadOutput(
        f"predict returned rows with the index {shown}; expected that of the batch, 0 to {n - 1} in any order. "
        "If the rows are in the order of the batch, use .reset_index(drop=True)"
    )
