"""Tensors: the declared type and shape, and how messages describe both."""

from __future__ import annotations

import re
from typing import NamedTuple

# The numbers are the worker protocol's and never change. The names are numpy's.
DTYPE_NAMES = {
    1: "bool",
    2: "uint8",
    3: "uint16",
    4: "uint32",
    5: "uint64",
    6: "int8",
    7: "int16",
    8: "int32",
    9: "int64",
    10: "float16",
    11: "float32",
    12: "float64",
    13: "bytes",
}
DTYPE_CODES = {name: code for code, name in DTYPE_NAMES.items()}

# struct's letter of each numeric type, which has the type's size.
DTYPE_FORMATS = {
    "bool": "?",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


class BadOutput(Exception):
    """The model returned outputs that do not fit its signature. The text says what it returned and what was
    expected."""


class TensorSpec(NamedTuple):
    """One declared input or output of one query. The shape has no batch dimension; -1 may be any length."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def fixed(self) -> bool:
        """Whether every query's data has the same number of bytes."""
        return self.dtype != "bytes" and all(d >= 0 for d in self.shape)

    def fits(self, dims: tuple[int, ...]) -> bool:
        """Whether dims is an instance of the declared shape."""
        if len(dims) != len(self.shape):
            return False
        for declared, d in zip(self.shape, dims):
            if d != declared and (declared != -1 or d < 0) or d < 0:
                return False
        return True

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Signature(NamedTuple):
    """What a model takes and returns, for one query."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


_SPEC = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*")


def parse_spec(name: str, text: str) -> TensorSpec:
    """Parses ``float32[64]``, ``bytes[]`` or ``float32[-1, 3]``, the form that messages use."""
    found = _SPEC.fullmatch(text)
    dtype = found.group(1) if found else ""
    if dtype in ("string", "str"):
        dtype = "bytes"
    try:
        shape = tuple(int(d) for d in found.group(2).split(",")) if found and found.group(2).strip() else ()
    except ValueError:
        shape = (-2,)
    if dtype not in DTYPE_CODES or any(d < -1 for d in shape):
        expected = "a type and a shape such as 'float32[64]', 'bytes[]' or 'int64[-1, 3]'"
        raise ValueError(f"tensor {name!r} is declared as {text!r}: expected {expected}")
    return TensorSpec(name, dtype, shape)


def describe(value: object) -> str:
    """Describes a value in a few words, for messages to model authors."""
    if value is None:
        return "None (is a return missing?)"
    if isinstance(value, float) and value != value:
        return "float nan"
    kind = type(value).__name__
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and shape is not None:
        return f"{kind} {dtype} of shape {tuple(shape)}"
    if isinstance(value, dict):
        return f"dict with the keys {sorted(map(str, value))}"
    try:
        return f"{kind} of length {len(value)}"  # type: ignore[arg-type]
    except TypeError:
        return kind
