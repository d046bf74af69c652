"""Codecs of numeric tensors with numpy: inputs are read-only views of the block, outputs are cast straight into it.

This module imports numpy, and is imported only if a signature has a numeric tensor. The codecs' interface is
:class:`xebec._bytes.Codec`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ._bytes import as_list, ragged_size, read_entries, write_entries
from ._protocol import ProtocolError
from ._tensors import BadOutput, TensorSpec, describe

# torch.from_numpy warns once about each batch's read-only memory, which is how inputs always are, and so at every start.
warnings.filterwarnings("ignore", message="The given NumPy array is not writ", category=UserWarning)

# ndarray(shape, dtype, buffer, offset) is one call, in half the time of frombuffer and reshape. It keeps the mapping
# alive by a reference but does not count as an exported buffer, so mappings are never closed, only released.
_ndarray = np.ndarray


def dtype_of(name: str) -> Any:
    """numpy's type of a declared one. Raises ImportError for bfloat16 without ml_dtypes, which defines it."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as e:
        raise ImportError("bfloat16 tensors need ml_dtypes in the model's environment: pip install ml_dtypes") from e
    return np.dtype(ml_dtypes.bfloat16)


def _is_masked(value: Any) -> bool:
    masked: Any = np.ma  # numpy 1.26 has no types for its functions
    return bool(masked.is_masked(value))


def castable(what: str, value: Any, dtype: Any, noun: str) -> Any:
    """Returns value as an array that may be assigned to dtype under numpy's same_kind rule, or raises BadOutput.

    Integers must fit: same_kind alone would wrap those that do not.
    """
    try:
        array = np.asarray(value)
    except Exception as e:  # an object's __array__ may fail in any way
        raise BadOutput(f"{what}: {noun} is {describe(value)}, which numpy cannot convert to an array: {e}") from e
    if type(value) is not _ndarray and isinstance(value, _ndarray) and _is_masked(value):
        raise BadOutput(f"{what}: {noun} has masked elements, which have no value: use .filled(VALUE)")
    if array.dtype == dtype:
        return array
    if not isinstance(value, _ndarray) and array.size == 0:
        return array.astype(dtype, casting="unsafe")  # numpy makes [] float64
    same_kind = np.can_cast(array.dtype, dtype, "same_kind")
    if array.dtype.kind in "iu" and dtype.kind in "iu" and array.size and not np.can_cast(array.dtype, dtype):
        # Python's ints have no width: they fit if their values do.
        if same_kind or not hasattr(value, "dtype"):
            info = np.iinfo(dtype)
            if info.min <= int(array.min()) and int(array.max()) <= info.max:
                return array.astype(dtype, casting="unsafe")
            raise BadOutput(f"{what}: {noun} has values outside the range of {dtype}")
    if same_kind:
        return array
    if array.dtype.kind == "O":
        if wrong := _not_numbers(value, array):
            raise BadOutput(f"{what}: {noun} {wrong}")
        if isinstance(value, _ndarray):
            return castable(what, array.tolist(), dtype, noun)  # numbers that were put into an array of objects
        raise BadOutput(f"{what}: {noun} has values outside the range of {dtype}")  # ints of more than 64 bits
    hint = f"; convert it, for example with .astype({str(dtype)!r})"
    raise BadOutput(f"{what}: {noun} is {describe(value)}: {array.dtype} does not cast to {dtype}{hint}")


def _not_numbers(value: Any, array: Any) -> str:
    """Says why value, of which numpy made an array of objects, is no tensor: it names the first element that is no
    number. Empty: all are."""
    if array.ndim == 0:
        return f"is {describe(value)}; expected an array, or a list of numbers"
    for at in np.ndindex(array.shape):
        if not isinstance(array[at], (int, float, complex, np.number, np.bool_)):
            return f"is {describe(value)}, whose element {list(at)} is {describe(array[at])}; expected numbers"
    return ""


class FixedArrays:
    """A numeric tensor of fixed shape: one array of shape (n, *shape)."""

    def __init__(self, spec: TensorSpec, what: str, text: bool = False) -> None:
        self.spec, self.what = spec, what
        self.dtype, self.shape = dtype_of(spec.dtype), spec.shape
        self.item_bytes = self.dtype.itemsize * math.prod(spec.shape)

    def read(self, buf: Any, at: int, length: int, n: int) -> Any:
        if length != n * self.item_bytes:
            raise ProtocolError(f"{self.what}: a section of {length} bytes, expected {n} × {self.item_bytes}")
        return _ndarray((n, *self.shape), self.dtype, buf, at)

    def prepare(self, value: Any, n: int) -> tuple[int, Any]:
        if type(value) is not _ndarray or value.dtype != self.dtype:
            value = castable(self.what, value, self.dtype, "the value")
        if value.shape != (n, *self.shape):
            self._wrong_shape(value, n)
        return n * self.item_bytes, value

    def _wrong_shape(self, value: Any, n: int) -> None:
        want = (n, *self.shape)
        text = f"{self.what}: predict returned an array of shape {value.shape}; expected {want}: {n} items of {self.spec}"
        if value.size == math.prod(want):
            shape = ", ".join(map(str, ("n", *self.shape)))
            text += f"; the number of elements is right: use .reshape({shape}), where n is the number of queries"
        raise BadOutput(text)

    def write(self, buf: Any, at: int, prepared: Any, n: int) -> None:
        _ndarray(prepared.shape, self.dtype, buf, at)[...] = prepared


class RaggedArrays:
    """A numeric tensor whose dimensions differ between queries: a list of arrays."""

    def __init__(self, spec: TensorSpec, what: str, text: bool = False) -> None:
        self.spec, self.what = spec, what
        self.dtype, self.rank = dtype_of(spec.dtype), len(spec.shape)
        self._empty = tuple(max(d, 0) for d in spec.shape)

    def read(self, buf: Any, at: int, length: int, n: int) -> list[Any]:
        dtype, itemsize, fits = self.dtype, self.dtype.itemsize, self.spec.fits
        items: list[Any] = []
        for off, size, shape in zip(*read_entries(self.what, buf, at, length, n, self.rank)):
            if not fits(shape) or size != math.prod(shape) * itemsize:
                raise ProtocolError(
                    f"{self.what}: item {len(items)} has the shape {list(shape)} and {size} bytes, expected one of {self.spec}"
                )
            items.append(_ndarray(shape, dtype, buf, at + off))
        return items

    def prepare(self, value: Any, n: int) -> tuple[int, Any]:
        if isinstance(value, _ndarray) and value.ndim == self.rank + 1:
            # A batch whose items have the same shape: check the first for all. Its rows are views.
            value = castable(self.what, value, self.dtype, "the value")
            arrays = list(value)
            judged = arrays[:1]
        else:
            items = as_list(self.what, value, n)
            arrays = judged = [self._item(item, i) for i, item in enumerate(items)]
        if len(arrays) != n:
            raise BadOutput(f"{self.what}: predict returned {len(arrays)} items for {n} queries; expected one for each")
        for i, array in enumerate(judged):
            if not self.spec.fits(array.shape):
                raise BadOutput(f"{self.what}: item {i} has the shape {list(array.shape)}; expected {self.spec}")
        sizes = [array.size * self.dtype.itemsize for array in arrays]
        return ragged_size(sizes, n, self.rank), (sizes, arrays)

    def _item(self, item: Any, i: int) -> Any:
        array = castable(self.what, item, self.dtype, f"item {i}")
        if array.shape == (0,) and not math.prod(self._empty) and not isinstance(item, _ndarray):
            return array.reshape(self._empty)  # [] has no dimensions: use the declared ones
        return array

    def write(self, buf: Any, at: int, prepared: Any, n: int) -> None:
        sizes, arrays = prepared
        for place, array in zip(write_entries(buf, at, sizes, [a.shape for a in arrays], self.rank), arrays):
            _ndarray(array.shape, self.dtype, buf, place)[...] = array
