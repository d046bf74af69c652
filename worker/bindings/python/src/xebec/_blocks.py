"""Blocks: the layout of a batch's tensors in shared memory. A block is a section table and one section per tensor."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from typing import Any

from ._bytes import ByteStrings, Codec, NestedByteStrings, as_list
from ._protocol import ProtocolError
from ._tensors import BadOutput, TensorSpec, describe

ALIGN = 64

# What prepare passes to write: the block's length, each section as (codec, offset, prepared value), the section table.
LaidOut = tuple[int, list[tuple[Codec, int, Any]], list[int]]


def codecs(specs: Sequence[TensorSpec], noun: str, text: bool = False, numpy: bool = True) -> list[Codec]:
    """One codec per tensor. The first numeric tensor imports numpy; bytes alone never do."""
    found: list[Codec] = []
    for spec in specs:
        what = f"{noun} {spec.name!r}"
        if spec.dtype in ("bytes", "string"):
            found.append((NestedByteStrings if spec.shape else ByteStrings)(spec, what, text or spec.dtype == "string"))
        else:
            fixed, ragged = _numeric(numpy)
            found.append((fixed if spec.fixed else ragged)(spec, what))
    return found


def _numeric(numpy: bool) -> tuple[Any, Any]:
    if numpy:
        try:
            importlib.import_module("numpy")
        except ImportError:
            pass
        else:
            from . import _arrays

            return _arrays.FixedArrays, _arrays.RaggedArrays
    from . import _views

    return _views.FixedViews, _views.RaggedViews


class Float64s:
    """``f64 × n``: the confidences of a batch, or the value of ACCURACY. None becomes NaN, which means no value."""

    def __init__(self, what: str) -> None:
        self.what = what

    def read(self, buf: Any, at: int, length: int, n: int) -> tuple[float, ...]:
        if length != 8 * n:
            raise ProtocolError(f"{self.what}: a section of {length} bytes, expected {n} × 8")
        return struct.unpack_from(f"<{n}d", buf, at)

    def prepare(self, value: Any, n: int) -> tuple[int, list[float]]:
        items = as_list(self.what, value, n)
        try:
            return 8 * n, [float("nan") if item is None else float(item) for item in items]
        except (TypeError, ValueError):
            raise BadOutput(f"{self.what}: got {describe(value)}; expected {n} numbers") from None

    def write(self, buf: Any, at: int, prepared: list[float], n: int) -> None:
        struct.pack_into(f"<{n}d", buf, at, *prepared)


class Statuses:
    """``uint16 × n``: how each query ended."""

    what = "the statuses"

    def read(self, buf: Any, at: int, length: int, n: int) -> tuple[int, ...]:
        if length != 2 * n:
            raise ProtocolError(f"{self.what}: a section of {length} bytes, expected {n} × 2")
        return struct.unpack_from(f"<{n}H", buf, at)

    def prepare(self, value: Any, n: int) -> tuple[int, Any]:
        return 2 * n, value

    def write(self, buf: Any, at: int, prepared: Any, n: int) -> None:
        struct.pack_into(f"<{n}H", buf, at, *prepared)


class Block:
    """The layout of one kind of block, independent of where a block lies."""

    def __init__(self, sections: Sequence[Codec]) -> None:
        self.sections = tuple(sections)
        self.head = (16 * len(self.sections) + ALIGN - 1) & -ALIGN
        # The padding is part of the format, so a block that is written over an old one has zeros there.
        self._table = struct.Struct(f"<{2 * len(self.sections)}Q{self.head - 16 * len(self.sections)}x")

    def read(self, buf: Any, at: int, length: int, n: int) -> list[Any]:
        """Returns the value of each section of the block of n items at buf[at : at + length]. Raises ProtocolError."""
        if self.head > length:
            raise ProtocolError(f"a block of {length} bytes is too small for the table of {len(self.sections)} sections")
        table = self._table.unpack_from(buf, at)
        values = []
        i, room = 0, length - self.head
        for codec in self.sections:
            off, size = table[i], table[i + 1]
            i += 2
            room -= size
            # The last condition: overlapping sections claim more bytes than there are.
            if off & (ALIGN - 1) or not self.head <= off <= length or size > length - off or room < 0:
                raise ProtocolError(f"{codec.what}: a section at offset {off} with {size} bytes, in a block of {length} bytes")
            values.append(codec.read(buf, at + off, size, n))
        return values

    def prepare(self, values: Sequence[Any], n: int) -> LaidOut:
        """Checks the values and lays them out. The first element of the result is the block's length. Raises
        BadOutput."""
        off = end = self.head
        parts = []
        table: list[int] = []
        for codec, value in zip(self.sections, values):
            size, prepared = codec.prepare(value, n)
            parts.append((codec, off, prepared))
            table += (off, size)
            end = off + size
            off = (end + ALIGN - 1) & -ALIGN
        return end, parts, table

    def write(self, buf: Any, at: int, laid_out: LaidOut, n: int) -> None:
        """Writes what prepare laid out to buf[at:], which has room for it."""
        _, parts, table = laid_out
        self._table.pack_into(buf, at, *table)
        for codec, off, prepared in parts:
            codec.write(buf, at + off, prepared, n)
