"""Codecs of ``bytes`` tensors. They copy, because a Python ``bytes`` owns its memory.

A codec turns one section of a block into what ``predict`` sees (:meth:`read`), and what ``predict`` returned into one
section: :meth:`prepare` checks and measures, then :meth:`write`, which cannot fail, writes. Slices of the buffers that
are read are ``bytes``: a buffer is a mapping or ``bytes`` itself. The layout is section 5 of ``api/spec/worker.md``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import add, or_
from typing import Any, Protocol

from ._protocol import ProtocolError
from ._tensors import BadOutput, TensorSpec, describe

_U32 = struct.Struct("<I")


@lru_cache(maxsize=1024)  # batch sizes repeat; a size that was evicted is compiled again
def _u64s(n: int) -> struct.Struct:
    return struct.Struct(f"<{n}Q")


class Codec(Protocol):
    """The interface between a block and each of its sections."""

    what: str

    def read(self, buf: Any, at: int, length: int, n: int) -> Any:
        """Returns the value of the section of n items at buf[at : at + length]. Raises ProtocolError."""

    def prepare(self, value: Any, n: int) -> tuple[int, Any]:
        """Returns the section's length, and the value in the form that write takes. Raises BadOutput."""

    def write(self, buf: Any, at: int, prepared: Any, n: int) -> None:
        """Writes what prepare returned to buf[at:]."""


Dims = Sequence[tuple[int, ...]]


def read_entries(what: str, buf: Any, at: int, length: int, n: int, rank: int) -> tuple[Sequence[int], Sequence[int], Dims]:
    """Returns the tables of a ragged section: each item's offset within the section, its length and its dimensions. It
    checks all offsets and lengths together rather than one by one, because this is most of the cost of a large batch
    of small items."""
    head = n * (16 + 8 * rank)
    if head > length:
        raise ProtocolError(f"{what}: a section of {length} bytes is too small for the tables of {n} items")
    flat = _u64s(2 * n).unpack_from(buf, at)
    offsets, sizes = flat[::2], flat[1::2]
    if n and (
        reduce(or_, offsets) & 7
        or min(offsets) < head
        or max(map(add, offsets, sizes)) > length
        or sum(sizes) > length - head  # overlapping items claim more bytes than there are
    ):
        raise ProtocolError(f"{what}: items outside a section of {length} bytes: offsets {offsets[:8]}…, lengths {sizes[:8]}…")
    if not rank:
        return offsets, sizes, ()
    numbers = iter(struct.unpack_from(f"<{n * rank}q", buf, at + 16 * n))
    return offsets, sizes, list(zip(*[numbers] * rank))


def write_entries(buf: Any, at: int, sizes: Sequence[int], dims: Sequence[Sequence[int]], rank: int) -> list[int]:
    """Writes both tables. Returns where each item's data belongs, as offsets in buf."""
    n = len(sizes)
    off = n * (16 + 8 * rank)
    flat: list[int] = []
    places = []
    for size in sizes:
        flat += (off, size)
        places.append(at + off)
        off = (off + size + 7) & ~7
    _u64s(2 * n).pack_into(buf, at, *flat)
    if rank:
        struct.pack_into(f"<{n * rank}q", buf, at + 16 * n, *(d for item in dims for d in item))
    return places


def ragged_size(sizes: Sequence[int], n: int, rank: int) -> int:
    """The length of a ragged section: its tables, and items that begin at multiples of 8. The section ends with the
    last item."""
    size = n * (16 + 8 * rank)
    for s in sizes:
        size = (size + 7 & ~7) + s
    return size


def as_list(what: str, value: Any, n: int) -> Any:
    """Returns value as a sequence of n items, or raises BadOutput. A string does not count as a sequence of strings."""
    if not isinstance(value, (list, tuple)) and hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        if isinstance(value, (str, bytes, bytearray, memoryview, dict)) or not hasattr(value, "__iter__"):
            raise BadOutput(f"{what}: predict returned {describe(value)}; expected a list of {n} items, one for each query")
        value = list(value)
    if len(value) != n:
        raise BadOutput(f"{what}: predict returned {len(value)} items for {n} queries; expected one for each")
    return value


def _raw(what: str, where: str, item: Any, string: bool) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode("utf-8")
        except UnicodeEncodeError as e:
            raise BadOutput(f"{what}: {where} cannot be encoded as UTF-8: {e.reason}") from e
    if isinstance(item, (bytes, bytearray, memoryview)):
        raw = bytes(item)
        if string:
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError as e:
                raise BadOutput(f"{what}: {where} is not valid UTF-8, which a string is: {e.reason}") from None
        return raw
    raise BadOutput(f"{what}: {where} is {describe(item)}; expected bytes or str")


class ByteStrings:
    """``bytes[]``: one byte string per query. With text, inputs are str. Outputs may be either."""

    def __init__(self, spec: TensorSpec, what: str, text: bool = False) -> None:
        self.what, self.text, self._string = what, text, spec.dtype == "string"

    def read(self, buf: Any, at: int, length: int, n: int) -> list[Any]:
        offsets, sizes, _ = read_entries(self.what, buf, at, length, n, 0)
        items = [buf[at + off : at + off + size] for off, size in zip(offsets, sizes)]
        # Invalid UTF-8 of one caller is replaced rather than refused, because it must not fail other queries of the
        # batch.
        return [item.decode("utf-8", "replace") for item in items] if self.text else items

    def prepare(self, value: Any, n: int) -> tuple[int, Any]:
        items = as_list(self.what, value, n)
        string = self._string
        raw = [item if type(item) is bytes and not string else _raw(self.what, f"item {i}", item, string) for i, item in enumerate(items)]
        sizes = list(map(len, raw))
        return ragged_size(sizes, n, 0), (sizes, raw)

    def write(self, buf: Any, at: int, prepared: Any, n: int) -> None:
        sizes, raw = prepared
        for place, size, item in zip(write_entries(buf, at, sizes, (), 0), sizes, raw):
            buf[place : place + size] = item


class NestedByteStrings:
    """``bytes`` with a rank above 0: lists nested as deep as the rank."""

    def __init__(self, spec: TensorSpec, what: str, text: bool = False) -> None:
        self.spec, self.what, self.text = spec, what, text
        self.rank = len(spec.shape)

    def read(self, buf: Any, at: int, length: int, n: int) -> list[Any]:
        items = []
        for i, (off, size, shape) in enumerate(zip(*read_entries(self.what, buf, at, length, n, self.rank))):
            if not self.spec.fits(shape):
                raise ProtocolError(f"{self.what}: item {i} has the shape {list(shape)}, expected {self.spec}")
            elements = self._elements(buf[at + off : at + off + size], i, shape)
            items.append(nest(elements, shape))
        return items

    def _elements(self, data: bytes, i: int, shape: Sequence[int]) -> list[Any]:
        wanted = math.prod(shape)
        if wanted > len(data) // 4:
            raise ProtocolError(f"{self.what}: item {i} of shape {list(shape)} does not fit in {len(data)} bytes")
        elements: list[Any] = []
        at = 0
        for _ in range(wanted):
            size = _U32.unpack_from(data, at)[0] if len(data) - at >= 4 else -1
            if size < 0 or size > len(data) - at - 4:
                raise ProtocolError(f"{self.what}: item {i} ends inside its element {len(elements)}")
            element = data[at + 4 : at + 4 + size]
            elements.append(element.decode("utf-8", "replace") if self.text else element)
            at += 4 + size
        if at != len(data):
            raise ProtocolError(f"{self.what}: item {i} has {len(data) - at} bytes after its last element")
        return elements

    def prepare(self, value: Any, n: int) -> tuple[int, Any]:
        dims, data = [], []
        for i, item in enumerate(as_list(self.what, value, n)):
            shape, elements = flatten(self.what, item, self.spec.shape, f"item {i}")
            if not self.spec.fits(shape):
                raise BadOutput(f"{self.what}: item {i} has the shape {list(shape)}; expected {self.spec}")
            raw = [_raw(self.what, f"an element of item {i}", e, self.spec.dtype == "string") for e in elements]
            dims.append(shape)
            data.append(b"".join(part for e in raw for part in (_U32.pack(len(e)), e)))
        return ragged_size(list(map(len, data)), n, self.rank), (dims, data)

    def write(self, buf: Any, at: int, prepared: Any, n: int) -> None:
        dims, data = prepared
        for place, item in zip(write_entries(buf, at, list(map(len, data)), dims, self.rank), data):
            buf[place : place + len(item)] = item


def nest(elements: list[Any], shape: Sequence[int]) -> Any:
    """Turns a flat list into nested lists of the given shape, row-major."""
    if len(shape) == 1:
        return elements
    step = math.prod(shape[1:])
    return [nest(elements[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def flatten(what: str, item: Any, declared: Sequence[int], where: str) -> tuple[tuple[int, ...], list[Any]]:
    """Returns the shape and the elements of lists nested as deep as the declared shape. Raises BadOutput if they are
    uneven."""
    shape: list[int] = []
    level = [item]
    for depth, dimension in enumerate(declared):
        lists = [x.tolist() if hasattr(x, "tolist") else x for x in level]
        wrong = [x for x in lists if not isinstance(x, (list, tuple))]
        if wrong:
            raise BadOutput(f"{what}: {where} is {describe(wrong[0])} at depth {depth}; expected lists {len(declared)} deep")
        lengths = set(map(len, lists))
        if len(lengths) > 1:
            raise BadOutput(f"{what}: {where} is uneven: lists of lengths {sorted(lengths)} at depth {depth}")
        # Below an empty list the dimension is unknown: use the declared one.
        shape.append(lengths.pop() if lengths else max(dimension, 0))
        level = [x for inner in lists for x in inner]
    return tuple(shape), level
