"""Tensors: the declared type and shape, and how messages describe both."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

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
    14: "string",
    15: "bfloat16",
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
    "bfloat16": "H",  # its bits: struct has no letter for it
    "float32": "f",
    "float64": "d",
}


class BadOutput(Exception):
    """The model returned outputs that do not fit its signature. The text says what it returned and what was
    expected."""


class Error(Exception):
    """A model's refusal of one query. predict returns it in the query's place, or raises it.

    With the code "invalid_input" the caller gets status 400 and this text; it does not count as a failure of the model.
    With "model_error" the caller gets 502 without the text, which operators see. If predict raises it for a batch of
    several queries, the gateway evaluates each query alone, unless the model has ``retry: false``.
    """

    def __init__(self, message: str, code: str = "invalid_input") -> None:
        if code not in ERROR_CODES:
            raise ValueError(f"xebec.Error: the code is {code!r}; expected one of {', '.join(ERROR_CODES)}")
        super().__init__(message)
        self.code = code

    @property
    def refuses(self) -> bool:
        """Whether it says all that there is to say, so that operators need no traceback."""
        return True

    @property
    def status(self) -> int:
        """The worker protocol's status of the query."""
        return ERROR_CODES.get(self.code, ERROR_CODES["model_error"])


# The worker protocol's status of a query.
ERROR_CODES = {"invalid_input": 1, "model_error": 2}


class TensorSpec(NamedTuple):
    """One declared input or output of one query. The shape has no batch dimension; -1 may be any length."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def fixed(self) -> bool:
        """Whether every query's data has the same number of bytes."""
        return self.dtype not in ("bytes", "string") and all(d >= 0 for d in self.shape)

    def placeholder(self) -> Any:
        """The least value of one query: zeros, or empty where a dimension may be."""
        kind = self.dtype
        value: Any = b"" if kind in ("bytes", "string") else False if kind == "bool" else 0.0 if "float" in kind else 0
        for d in reversed(self.shape):
            value = [value] * max(d, 0)
        return value

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
    if dtype == "str":
        dtype = "string"
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
