"""The worker protocol's frames and descriptors as pure functions between bytes and values.

The byte tables are those of ``api/spec/worker.md``. Every decoder raises :class:`ProtocolError` for what the
specification forbids, and compares each length with the bytes that are there before it uses it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional

from ._tensors import DTYPE_CODES, DTYPE_NAMES, Signature, TensorSpec

MAJOR, MINOR = 2, 0  # the highest version; WELCOME has the one that is used

BELL = 0x01
HELLO = 0x02
WELCOME = 0x03
SEGMENTS = 0x04
READY = 0x05
REFUSED = 0x06
LEAVING = 0x07
DRAIN = 0x08
CANCEL = 0x09
LINES = 0x0A
REQUEST = 0x10
RESPONSE = 0x11
FRAME_TYPES = frozenset((HELLO, WELCOME, SEGMENTS, READY, REFUSED, LEAVING, DRAIN, CANCEL, LINES, REQUEST, RESPONSE))

# Capabilities in HELLO. RING, CONTEXTS and the last four are also the bits of WELCOME's mode.
CAN_RING = 1 << 0
CAN_FEEDBACK = 1 << 1
CAN_ACCURACY = 1 << 2
CAN_CONTEXTS = 1 << 3
CAN_CONFIDENCES = 1 << 4
CAN_PARAMETERS = 1 << 5
CAN_CALLS = 1 << 6
CAN_STREAMS = 1 << 7
CAN_LINES = 1 << 8

PREDICT, FEEDBACK, ACCURACY, GRANT, DISCARD = 1, 2, 3, 4, 5
OK, MODEL_ERROR, BAD_OUTPUT, NEED_MORE, UNSUPPORTED, MORE = 0, 1, 2, 3, 4, 5
MAX_STREAM_OUTPUTS = 256
FLAG_CONFIDENCES, FLAG_STATUSES = 1, 2

REFUSED_WHY = {
    1: "protocol version",
    2: "token",
    3: "model or version",
    4: "signature",
    5: "malformed frame",
    6: "protocol violation",
}

MAX_PAYLOAD_BYTES = 65_536
MAX_TENSORS = 255
MAX_RANK = 16
MIN_ENTRIES, MAX_ENTRIES = 16, 4096
CONTROL_BYTES = 4096
DESCRIPTOR_BYTES = 64
SEGMENT_MAGIC = 0x31304D4853424558  # the bytes "XEBSHM01"
ROLE_A, ROLE_B = 1, 2

_HEADER = struct.Struct("<BBHI")
_SEGMENTS = struct.Struct("<IIQQ")
_CONTROL = struct.Struct("<QIIQI")
_REQUEST = struct.Struct("<QIHHIIQQQQII")
_RESPONSE = struct.Struct("<QIHHIIQQQQQ")
_RESPONSE_FRAME = struct.Struct("<BBHIQIHHIIQQQQQ")


class ProtocolError(Exception):
    """The peer sent something that the worker protocol forbids."""


class Hello(NamedTuple):
    major: int
    minor: int
    capabilities: int
    token: str
    model: str
    version: str
    binding: str
    signature: Optional[Signature]
    concurrency: int = 1  # from version 2 on


class Welcome(NamedTuple):
    major: int
    minor: int
    mode: int
    replica: int
    model: str
    version: str
    signature: Signature


class Segments(NamedTuple):
    generation: int
    entries: int
    size_a: int
    size_b: int


class Refused(NamedTuple):
    code: int
    text: str


class Request(NamedTuple):
    """A request descriptor. The field queries is count in the specification, a name that tuples already have."""

    batch: int
    generation: int
    kind: int
    queries: int
    in_off: int
    in_len: int
    out_off: int
    out_cap: int
    budget_micros: int


class Response(NamedTuple):
    batch: int
    generation: int
    kind: int
    status: int
    queries: int
    flags: int
    out_off: int
    out_len: int
    need: int
    work_nanos: int


def frame(kind: int, payload: bytes = b"") -> bytes:
    """A complete frame: header and payload."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a payload of {len(payload)} bytes: at most {MAX_PAYLOAD_BYTES} fit in a frame")
    return _HEADER.pack(kind, 0, 0, len(payload)) + payload


class Frames:
    """Splits a byte stream into frames and drops bells. It holds at most one incomplete frame, bounded by
    MAX_PAYLOAD_BYTES."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def midframe(self) -> bool:
        """True if a frame is incomplete. The next bytes belong to it, including those that look like bells."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Returns the frames that data completes, in order, as (type, payload)."""
        if self._rest:
            data = self._rest + data
        found = []
        at, end = 0, len(data)
        while at < end:
            if data[at] == BELL:
                at += 1
                continue
            if data[at] not in FRAME_TYPES:
                raise ProtocolError(f"unknown frame type 0x{data[at]:02x}")
            if end - at < _HEADER.size:
                break
            kind, reserved8, reserved16, length = _HEADER.unpack_from(data, at)
            if reserved8 or reserved16:
                raise ProtocolError(f"frame type 0x{kind:02x}: reserved bytes are not 0")
            if length > MAX_PAYLOAD_BYTES:
                raise ProtocolError(
                    f"frame type 0x{kind:02x}: a payload of {length} bytes, at most {MAX_PAYLOAD_BYTES} are allowed"
                )
            stop = at + _HEADER.size + length
            if stop > end:
                break
            found.append((kind, data[at + _HEADER.size : stop]))
            at = stop
        self._rest = data[at:]
        return found


class _Fields:
    """Reads the fields of one payload in order. Missing bytes and remaining bytes are errors."""

    def __init__(self, what: str, payload: bytes) -> None:
        self.what, self.payload, self.at = what, payload, 0

    def take(self, n: int) -> bytes:
        if n > len(self.payload) - self.at:
            raise ProtocolError(f"{self.what}: {len(self.payload)} bytes end inside a field")
        self.at += n
        return self.payload[self.at - n : self.at]

    def uint(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def string(self) -> str:
        raw = self.take(self.uint(2))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolError(f"{self.what}: a string is not UTF-8") from None

    def tensors(self) -> tuple[TensorSpec, ...]:
        count = self.uint(2)
        if count > MAX_TENSORS:
            raise ProtocolError(f"{self.what}: {count} tensors, at most {MAX_TENSORS} are allowed")
        return tuple(self.tensor() for _ in range(count))

    def tensor(self) -> TensorSpec:
        name, code, rank = self.string(), self.uint(1), self.uint(1)
        if code not in DTYPE_NAMES:
            raise ProtocolError(f"{self.what}: tensor {name!r} has the unknown dtype {code}")
        if rank > MAX_RANK:
            raise ProtocolError(f"{self.what}: tensor {name!r} has rank {rank}, at most {MAX_RANK} is allowed")
        shape = struct.unpack(f"<{rank}q", self.take(8 * rank))
        if any(d < -1 for d in shape):
            raise ProtocolError(f"{self.what}: tensor {name!r} has the shape {list(shape)}: expected dimensions of -1 or more")
        return TensorSpec(name, DTYPE_NAMES[code], shape)

    def signature(self) -> Signature:
        return Signature(self.tensors(), self.tensors())

    def end(self) -> None:
        if self.at != len(self.payload):
            raise ProtocolError(f"{self.what}: {len(self.payload) - self.at} bytes too many")


def _string(s: str) -> bytes:
    raw = s.encode("utf-8")
    if len(raw) > 0xFFFF:
        raise ProtocolError(f"a string of {len(raw)} bytes: at most 65535 fit")
    return struct.pack("<H", len(raw)) + raw


def _tensors(specs: tuple[TensorSpec, ...]) -> bytes:
    parts = [struct.pack("<H", len(specs))]
    for spec in specs:
        parts.append(_string(spec.name))
        parts.append(struct.pack(f"<BB{len(spec.shape)}q", DTYPE_CODES[spec.dtype], len(spec.shape), *spec.shape))
    return b"".join(parts)


def _signature(signature: Signature) -> bytes:
    return _tensors(signature.inputs) + _tensors(signature.outputs)


def encode_hello(m: Hello) -> bytes:
    """The payload of HELLO."""
    head = struct.pack("<HHI", m.major, m.minor, m.capabilities)
    names = _string(m.token) + _string(m.model) + _string(m.version) + _string(m.binding)
    payload = head + names + (b"\0" if m.signature is None else b"\1" + _signature(m.signature))
    return payload + struct.pack("<H", m.concurrency) if m.major >= 2 else payload


def decode_hello(payload: bytes) -> Hello:
    f = _Fields("HELLO", payload)
    head = (f.uint(2), f.uint(2), f.uint(4), f.string(), f.string(), f.string(), f.string())
    has_signature = f.uint(1)
    if has_signature > 1:
        raise ProtocolError(f"HELLO: has_signature is {has_signature}, expected 0 or 1")
    signature = f.signature() if has_signature else None
    concurrency = f.uint(2) if head[0] >= 2 else 1
    if not concurrency:
        raise ProtocolError("HELLO: the concurrency is 0, expected at least 1")
    f.end()
    return Hello(*head, signature, concurrency)


def encode_welcome(m: Welcome) -> bytes:
    """The payload of WELCOME. Workers only read it; tests write it."""
    return struct.pack("<HHIQ", *m[:4]) + _string(m.model) + _string(m.version) + _signature(m.signature)


def decode_welcome(payload: bytes) -> Welcome:
    f = _Fields("WELCOME", payload)
    m = Welcome(f.uint(2), f.uint(2), f.uint(4), f.uint(8), f.string(), f.string(), f.signature())
    f.end()
    return m


def encode_segments(m: Segments) -> bytes:
    return _SEGMENTS.pack(*m)


def decode_segments(payload: bytes) -> Segments:
    _exactly("SEGMENTS", payload, _SEGMENTS.size)
    m = Segments(*_SEGMENTS.unpack(payload))
    if not MIN_ENTRIES <= m.entries <= MAX_ENTRIES or m.entries & (m.entries - 1):
        raise ProtocolError(f"SEGMENTS: {m.entries} entries, expected a power of two from {MIN_ENTRIES} to {MAX_ENTRIES}")
    for name, size in (("A", m.size_a), ("B", m.size_b)):
        if size < slab_offset(m.entries):
            raise ProtocolError(f"SEGMENTS: segment {name} of {size} bytes is too small for its own ring")
    return m


def encode_ready(generation: int) -> bytes:
    return struct.pack("<I", generation)


def decode_ready(payload: bytes) -> int:
    _exactly("READY", payload, 4)
    return int.from_bytes(payload, "little")


def encode_refused(m: Refused) -> bytes:
    return struct.pack("<H", m.code) + _string(m.text)


def decode_refused(payload: bytes) -> Refused:
    f = _Fields("REFUSED", payload)
    m = Refused(f.uint(2), f.string())
    f.end()
    return m


def encode_leaving(reason: str) -> bytes:
    return _string(reason)


def decode_leaving(payload: bytes) -> str:
    f = _Fields("LEAVING", payload)
    reason = f.string()
    f.end()
    return reason


def encode_cancel(batch: int) -> bytes:
    return struct.pack("<Q", batch)


def decode_cancel(payload: bytes) -> int:
    if len(payload) != 8:
        raise ProtocolError(f"CANCEL: a payload of {len(payload)} bytes, expected 8")
    return int.from_bytes(payload, "little")


def decode_drain(payload: bytes) -> None:
    _exactly("DRAIN", payload, 0)


def decode_lines(payload: bytes) -> None:
    _exactly("LINES", payload, 0)


def encode_request(m: Request) -> bytes:
    return _REQUEST.pack(m.batch, m.generation, m.kind, 0, m.queries, 0, *m[4:], 0)


def decode_request(raw: bytes) -> Request:
    """The fields of 64 bytes. check_request checks their values."""
    _exactly("REQUEST", raw, DESCRIPTOR_BYTES)
    batch, generation, kind, flags, queries, r1, in_off, in_len, out_off, out_cap, budget, r2 = _REQUEST.unpack(raw)
    if flags or r1 or r2:
        raise ProtocolError(f"request of batch {batch}: reserved fields are not 0")
    return Request(batch, generation, kind, queries, in_off, in_len, out_off, out_cap, budget)


def check_request(kind: int, queries: int, in_off: int, out_off: int) -> None:
    """Raises ProtocolError for a request that contradicts itself."""
    if not PREDICT <= kind <= DISCARD:
        raise ProtocolError(f"a request of the unknown kind {kind}")
    if (queries == 0) != (kind == ACCURACY or kind == DISCARD):
        raise ProtocolError(f"a request of kind {kind} with {queries} queries")
    if (in_off | out_off) & 63:
        raise ProtocolError(f"blocks at the offsets {in_off} and {out_off}: expected multiples of 64")


def encode_response(m: Response) -> bytes:
    return _RESPONSE.pack(*m, 0)


def response_frame(*fields: int) -> bytes:
    """A RESPONSE frame with its header. The fields are those of Response, in their order."""
    return _RESPONSE_FRAME.pack(RESPONSE, 0, 0, DESCRIPTOR_BYTES, *fields, 0)


def decode_response(raw: bytes) -> Response:
    """The fields of 64 bytes. Workers only write them; tests read them."""
    _exactly("RESPONSE", raw, DESCRIPTOR_BYTES)
    fields = _RESPONSE.unpack(raw)
    m = Response(*fields[:-1])
    if fields[-1] or m.flags & ~(FLAG_CONFIDENCES | FLAG_STATUSES):
        raise ProtocolError(f"response of batch {m.batch}: reserved fields are not 0")
    if not PREDICT <= m.kind <= ACCURACY or m.status > MORE:
        raise ProtocolError(f"response of batch {m.batch}: kind {m.kind} with status {m.status}")
    if (m.need > 0) != (m.status == NEED_MORE):
        raise ProtocolError(f"response of batch {m.batch}: status {m.status} needs {m.need} bytes")
    return m


def _exactly(what: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise ProtocolError(f"{what}: {len(payload)} bytes, expected {size}")


def slab_offset(entries: int) -> int:
    """Where the slab begins in a segment with this many ring entries."""
    return (CONTROL_BYTES + DESCRIPTOR_BYTES * entries + 4095) & ~4095


def check_control(page: bytes, role: int, m: Segments) -> None:
    """Compares the start of a segment, which the gateway wrote, with SEGMENTS."""
    magic, generation, entries, size, got_role = _CONTROL.unpack_from(page, 0)
    want = (SEGMENT_MAGIC, m.generation, m.entries, m.size_a if role == ROLE_A else m.size_b, role)
    names = ("magic", "generation", "entries", "size", "role")
    for name, g, w in zip(names, (magic, generation, entries, size, got_role), want):
        if g != w:
            raise ProtocolError(f"segment {'A' if role == ROLE_A else 'B'}: its {name} is {g:#x}, expected {w:#x}")
