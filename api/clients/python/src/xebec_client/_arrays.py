"""numpy's arrays as JSON and as bytes. numpy is imported only by programs that use it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

_NAMES = frozenset(
    {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}
)


def is_array(value: Any) -> bool:
    """Reports whether value is an array or a number of numpy's. Where numpy was never imported there are none."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def has_arrays(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(is_array(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return any(is_array(v) or isinstance(v, Mapping) and has_arrays(v) for v in value)
    return is_array(value)


def has_dtype(name: str) -> bool:
    """Reports whether numpy has this element type: it has no bfloat16."""
    return name in _NAMES


def to_json(value: Any) -> Any:
    """Missing numbers are null. Infinities have no form in JSON, and are left for the encoder to refuse."""
    import numpy as np

    array = np.asarray(value)
    if array.dtype.kind == "f" and (missing := np.isnan(array)).any():
        array = array.astype(object)
        array[missing] = None
    return array.tolist()


def to_bytes(value: Any, tensor: Mapping[str, Any]) -> bytes:
    """The little-endian, row-major bytes of an array as an input of this type. Raises ValueError if it cannot be one."""
    import numpy as np

    array, shape = np.asarray(value), tensor["shape"]
    if len(shape) != array.ndim or any(d not in (-1, n) for d, n in zip(shape, array.shape, strict=True)):
        raise ValueError(f"input {tensor['name']} has the shape {list(array.shape)}: expected {shape}")
    if not has_dtype(tensor["dtype"]):
        raise ValueError(f"input {tensor['name']} is {tensor['dtype']}, which numpy has not: expected a list, or bytes")
    dtype = np.dtype(tensor["dtype"])
    if array.dtype != dtype:
        integers = array.dtype.kind in "iub" and dtype.kind in "iu"  # what is checked is their values
        if not integers and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ValueError(f"input {tensor['name']} has the dtype {array.dtype}: expected {dtype}")
        converted = array.astype(dtype)
        if integers and not np.array_equal(converted, array):
            raise ValueError(f"input {tensor['name']} has the dtype {array.dtype} and numbers that {dtype} cannot hold")
        array = converted
    return bytes(np.ascontiguousarray(array, dtype.newbyteorder("<")).tobytes())


def from_bytes(body: bytes, tensor: Mapping[str, Any]) -> Any:
    import numpy as np

    return (
        np.frombuffer(body, np.dtype(tensor["dtype"]).newbyteorder("<"))
        .astype(tensor["dtype"], copy=False)
        .reshape(tensor["shape"])[()]
    )


def from_json(output: Any, outputs: Sequence[Mapping[str, Any]]) -> Any:
    """An output as arrays: one, or a dict of them. Texts, bytes and what does not fit stay as they are."""
    if len(outputs) > 1 and isinstance(output, Mapping):
        return {t["name"]: _array(output[t["name"]], t) for t in outputs if t["name"] in output}
    return _array(output, outputs[0])


def _array(value: Any, tensor: Mapping[str, Any]) -> Any:
    import numpy as np

    if not has_dtype(tensor["dtype"]) and tensor["dtype"] != "bfloat16":
        return value
    dtype = "float32" if tensor["dtype"] == "bfloat16" else tensor["dtype"]
    return np.asarray(value, dtype)[()]
