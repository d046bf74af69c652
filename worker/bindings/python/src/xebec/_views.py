"""Codecs of numeric tensors without numpy: inputs are read-only memoryviews of the block, outputs lists or buffers.

They serve models where numpy is not installed. Their interface is :class:`xebec._bytes.Codec`. A memoryview has the
tensor's shape and element type, with three exceptions: float16 arrives as its 16 bits (``H``) if this Python's memoryview
has no half floats, bfloat16 always does, and a view without elements is flat, because memoryview has no dimension 0.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from ._bytes import as_list, flatten, ragged_size, read_entries, write_entries
from ._protocol import ProtocolError
from ._tensors import DTYPE_FORMATS, BadOutput, TensorSpec, describe

_INTS = "BHIQbhiq"


def _view_format(letter: str) -> str:
    try:
        memoryview(bytes(8)).cast(letter)  # type: ignore[call-overload]
        return letter
    except ValueError:
        return "H"


def _view(buf: Any, at: int, size: int, letter: str, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(buf).toreadonly()[at : at + size].cast(_view_format(letter))  # type: ignore[call-overload]
    if len(shape) == 1 or not size:
        return flat  # type: ignore[no-any-return]
    return flat.cast("B").cast(flat.format, shape)  # type: ignore[no-any-return]


def _packed(what: str, where: str, value: Any, letter: str, declared: tuple[int, ...]) -> tuple[tuple[int, ...], bytes]:
    """Returns the shape and the bytes of one value: a buffer with a shape, or lists nested as deep as the declared
    shape."""
    if not isinstance(value, (list, tuple)):
        try:
            view = memoryview(value)
        except TypeError:
            view = None
        if view is not None and not isinstance(value, (bytes, bytearray)):
            if view.format not in (letter, _view_format(letter)) and not _same_int(view, letter):
                raise BadOutput(f"{what}: {where} holds elements of format {view.format!r}; expected {letter!r}")
            return tuple(view.shape or ()), view.tobytes()
    shape, elements = flatten(what, value, declared, where)
    wanted = bool if letter == "?" else int if letter in _INTS else (int, float)
    for e in elements:
        if not isinstance(e, wanted):
            raise BadOutput(f"{what}: {where} contains {describe(e)}; expected elements of format {letter!r}")
    try:
        return shape, struct.pack(f"<{len(elements)}{letter}", *elements)
    except (struct.error, OverflowError) as e:
        raise BadOutput(f"{what}: {where} contains a value out of range: {e}") from e


def _same_int(view: memoryview, letter: str) -> bool:
    """array('l') is int64 under another letter."""
    signed = {"l": "q", "L": "Q", "n": "q", "N": "Q"}
    return view.itemsize == struct.calcsize("<" + letter) and signed.get(view.format) == letter


class FixedViews:
    """A numeric tensor of fixed shape: one memoryview of shape (n, *shape)."""

    def __init__(self, spec: TensorSpec, what: str, text: bool = False) -> None:
        self.spec, self.what, self.letter = spec, what, DTYPE_FORMATS[spec.dtype]
        self.item_bytes = struct.calcsize("<" + self.letter) * math.prod(spec.shape)

    def read(self, buf: Any, at: int, length: int, n: int) -> memoryview:
        if length != n * self.item_bytes:
            raise ProtocolError(f"{self.what}: a section of {length} bytes, expected {n} × {self.item_bytes}")
        return _view(buf, at, length, self.letter, (n, *self.spec.shape))

    def prepare(self, value: Any, n: int) -> tuple[int, bytes]:
        want = (n, *self.spec.shape)
        shape, data = _packed(self.what, "the value", value, self.letter, want)
        # array.array has no shape of its own: accept a flat buffer with the right number of elements.
        if shape != want and not (len(shape) == 1 and shape[0] == math.prod(want) and not isinstance(value, (list, tuple))):
            raise BadOutput(f"{self.what}: predict returned values of shape {shape}; expected {want}: {n} items of {self.spec}")
        return len(data), data

    def write(self, buf: Any, at: int, prepared: bytes, n: int) -> None:
        buf[at : at + len(prepared)] = prepared


class RaggedViews:
    """A numeric tensor whose dimensions differ between queries: a list of memoryviews."""

    def __init__(self, spec: TensorSpec, what: str, text: bool = False) -> None:
        self.spec, self.what, self.letter = spec, what, DTYPE_FORMATS[spec.dtype]
        self.rank, self.itemsize = len(spec.shape), struct.calcsize("<" + self.letter)

    def read(self, buf: Any, at: int, length: int, n: int) -> list[memoryview]:
        items = []
        for i, (off, size, shape) in enumerate(zip(*read_entries(self.what, buf, at, length, n, self.rank))):
            if not self.spec.fits(shape) or size != math.prod(shape) * self.itemsize:
                raise ProtocolError(
                    f"{self.what}: item {i} has the shape {list(shape)} and {size} bytes, expected one of {self.spec}"
                )
            items.append(_view(buf, at + off, size, self.letter, shape))
        return items

    def prepare(self, value: Any, n: int) -> tuple[int, Any]:
        items = as_list(self.what, value, n)
        packed = [_packed(self.what, f"item {i}", item, self.letter, self.spec.shape) for i, item in enumerate(items)]
        for i, (shape, _) in enumerate(packed):
            if not self.spec.fits(shape):
                raise BadOutput(f"{self.what}: item {i} has the shape {list(shape)}; expected {self.spec}")
        return ragged_size([len(data) for _, data in packed], n, self.rank), packed

    def write(self, buf: Any, at: int, prepared: Any, n: int) -> None:
        sizes = [len(data) for _, data in prepared]
        for place, (_, data) in zip(write_entries(buf, at, sizes, [s for s, _ in prepared], self.rank), prepared):
            buf[place : place + len(data)] = data
