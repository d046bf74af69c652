"""The golden vectors of the worker protocol: each is decoded, encoded again if the binding can, or refused."""

import json
import math
import random
import struct
from pathlib import Path

import pytest
from gateway import render

from xebec import _protocol as p
from xebec._arrays import FixedArrays, RaggedArrays
from xebec._blocks import Block, codecs
from xebec._bytes import nest
from xebec._tensors import DTYPE_CODES, Signature, TensorSpec
from xebec._views import FixedViews, RaggedViews

GOLDEN = json.loads((Path(__file__).resolve().parents[4] / "api/spec/golden/vectors.json").read_text("utf-8"))

FRAMES = {
    "HELLO": (p.HELLO, p.Hello, p.decode_hello, p.encode_hello),
    "WELCOME": (p.WELCOME, p.Welcome, p.decode_welcome, p.encode_welcome),
    "SEGMENTS": (p.SEGMENTS, p.Segments, p.decode_segments, p.encode_segments),
    "READY": (p.READY, lambda generation: generation, p.decode_ready, p.encode_ready),
    "REFUSED": (p.REFUSED, p.Refused, p.decode_refused, p.encode_refused),
    "LEAVING": (p.LEAVING, lambda reason: reason, p.decode_leaving, p.encode_leaving),
    "CANCEL": (p.CANCEL, lambda batch: batch, p.decode_cancel, p.encode_cancel),
    "LINES": (p.LINES, lambda: None, p.decode_lines, lambda _: b""),
    "DRAIN": (p.DRAIN, lambda: None, p.decode_drain, lambda _: b""),
    "REQUEST": (p.REQUEST, p.Request, p.decode_request, p.encode_request),
    "RESPONSE": (p.RESPONSE, p.Response, p.decode_response, p.encode_response),
}
NAMES = {kind: name for name, (kind, *_) in FRAMES.items()}


def of(kind):
    return [pytest.param(v, id=v["name"]) for v in GOLDEN["vectors"] if v["kind"] == kind]


def tensors(declared):
    return tuple(TensorSpec(t["name"], t["dtype"], tuple(t["shape"])) for t in declared)


def message(name, fields):
    fields = dict(fields)
    if isinstance(fields.get("signature"), dict):
        fields["signature"] = Signature(tensors(fields["signature"]["inputs"]), tensors(fields["signature"]["outputs"]))
    for field, module_names in (("kind", "PREDICT FEEDBACK ACCURACY GRANT DISCARD"), ("status", "")):
        if isinstance(fields.get(field), str):
            assert not module_names or fields[field] in module_names.split()
            fields[field] = getattr(p, fields[field])
    if "count" in fields:
        fields["queries"] = fields.pop("count")
    return FRAMES[name][1](**fields)


@pytest.mark.parametrize("v", of("frame"))
def test_frame(v):
    raw = bytes.fromhex(v["hex"])
    kind, _, decode, encode = FRAMES[v["type"]]
    expected = message(v["type"], v["fields"])
    frames = p.Frames()
    [(got_kind, payload)] = frames.feed(raw)
    assert not frames.midframe
    assert got_kind == kind
    assert decode(payload) == expected
    if kind == p.REQUEST:
        p.check_request(expected.kind, expected.queries, expected.in_off, expected.out_off)
    if kind == p.RESPONSE:
        assert p.response_frame(*expected) == raw
    assert p.frame(kind, encode(expected)) == raw


@pytest.mark.parametrize("v", of("stream"))
def test_stream(v):
    raw = bytes.fromhex(v["hex"])
    assert [NAMES[kind] for kind, _ in p.Frames().feed(raw)] == v["frames"]
    frames, pieces = p.Frames(), []
    for i in range(len(raw)):
        pieces += frames.feed(raw[i : i + 1])
    assert [NAMES[kind] for kind, _ in pieces] == v["frames"]


@pytest.mark.parametrize("v", of("request") + of("response"))
def test_descriptor(v):
    raw = bytes.fromhex(v["hex"])
    name = v["kind"].upper()
    _, _, decode, encode = FRAMES[name]
    expected = message(name, v["fields"])
    assert decode(raw) == expected
    assert encode(expected) == raw
    if name == "REQUEST":
        p.check_request(expected.kind, expected.queries, expected.in_off, expected.out_off)
        assert len(expected) == 9, "as many fields as the ring gives"


def element(spec, x):
    if spec.dtype in ("bytes", "string"):
        raw = bytes.fromhex(x)
        return raw.decode() if spec.dtype == "string" else raw
    return float(x.replace("Infinity", "inf")) if isinstance(x, str) else x


def value(spec, items):
    """A section of a vector as a model would return it: nested lists."""
    out = []
    for item in items:
        data = [item["data"]] if isinstance(item["data"], str) else item["data"]
        data = [element(spec, x) for x in data]
        shape = item.get("dims", spec.shape)
        out.append(nest(data, shape) if shape else data[0])
    return out


def shapes(spec, items):
    return [tuple(item.get("dims", spec.shape)) for item in items]


def same(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return a == b


def bits_of_bfloat16(x):
    """Nested lists of exact numbers as the bits that a model without numpy gets and returns."""
    if isinstance(x, list):
        return [bits_of_bfloat16(item) for item in x]
    return struct.unpack("<I", struct.pack("<f", x))[0] >> 16


def listed(x, spec):
    """What a codec read, as nested lists."""
    if isinstance(x, list):
        return [listed(item, spec) for item in x]
    if isinstance(x, memoryview) and x.format == "H" and spec.dtype == "float16":
        return memoryview_of_halves(x)
    return x.tolist() if hasattr(x, "tolist") else x


def memoryview_of_halves(x):
    return nest(list(struct.unpack(f"<{x.nbytes // 2}e", x.tobytes())), x.shape)


@pytest.mark.parametrize("numpy", [True, False], ids=["numpy", "plain"])
@pytest.mark.parametrize("v", of("block"))
def test_block(v, numpy):
    raw, specs, n = bytes.fromhex(v["hex"]), tensors(v["sections"]), v["count"]
    sections = codecs(specs, "section", numpy=numpy)
    kinds = (FixedArrays, RaggedArrays) if numpy else (FixedViews, RaggedViews)
    assert all(isinstance(c, kinds) for c, spec in zip(sections, specs) if spec.dtype not in ("bytes", "string"))
    block = Block(sections)
    for spec, got, items in zip(specs, block.read(raw, 0, len(raw), n), v["items"]):
        flat = math.prod(spec.shape) == 0 or spec.shape[:1] == (0,)
        want = value(spec, items)
        if not numpy and spec.dtype == "bfloat16":
            want = bits_of_bfloat16(want)
        if not numpy and flat and spec.dtype not in ("bytes", "string"):
            continue  # a memoryview has no dimension 0
        assert same(listed(got, spec), want), spec
        if numpy and spec.dtype not in ("bytes", "string"):
            assert [x.shape for x in got] == shapes(spec, items)
    values = [value(spec, items) for spec, items in zip(specs, v["items"])]
    if not numpy:
        values = [bits_of_bfloat16(x) if spec.dtype == "bfloat16" else x for spec, x in zip(specs, values)]
    again = render(block, values, n)
    if v.get("layout") == "any":
        assert len(block.read(again, 0, len(again), n)) == len(specs)
    else:
        assert again == raw


def refuse(v):
    raw = bytes.fromhex(v["hex"])
    if v["kind"] in ("frame", "stream"):
        frames = p.Frames()
        for kind, payload in frames.feed(raw):
            m = FRAMES[NAMES[kind]][2](payload)
            if kind == p.REQUEST:
                p.check_request(m.kind, m.queries, m.in_off, m.out_off)
    elif v["kind"] == "request":
        m = p.decode_request(raw)
        p.check_request(m.kind, m.queries, m.in_off, m.out_off)
    elif v["kind"] == "response":
        p.decode_response(raw)
    else:
        for numpy in (True, False):
            with pytest.raises(p.ProtocolError):
                Block(codecs(tensors(v["sections"]), "section", numpy=numpy)).read(raw, 0, len(raw), v["count"])
        raise p.ProtocolError("both refused it")


@pytest.mark.parametrize("v", [pytest.param(v, id=v["name"]) for v in GOLDEN["refused"]])
def test_refused(v):
    with pytest.raises(p.ProtocolError):
        refuse(v)


def test_the_vectors_have_every_type():
    assert {v["type"] for v in GOLDEN["vectors"] if v["kind"] == "frame"} == set(FRAMES)
    used = {s["dtype"] for v in GOLDEN["vectors"] if v["kind"] == "block" for s in v["sections"]}
    assert used == set(DTYPE_CODES)


@pytest.mark.parametrize("v", GOLDEN["vectors"], ids=lambda v: v["name"])
def test_spoilt_bytes_are_decoded_or_refused(v):
    """For any bytes, decoders raise nothing but ProtocolError and read nothing outside of the bytes."""
    rng = random.Random(v["name"])
    good = bytes.fromhex(v["hex"])
    for _ in range(300):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(raw))
            raw[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.3:
            del raw[rng.randrange(len(raw)) :]
        spoilt = dict(v, hex=raw.hex())
        try:
            if v["kind"] == "block":
                for numpy in (True, False):
                    Block(codecs(tensors(v["sections"]), "section", numpy=numpy)).read(bytes(raw), 0, len(raw), v["count"])
            else:
                refuse(spoilt)
        except p.ProtocolError:
            pass
