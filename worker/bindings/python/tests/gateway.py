"""The gateway's side of the worker protocol, small and strict, so that tests can drive real workers.

The rings are accessed through ``memoryview`` casts: an aligned 8-byte store through a view of format ``Q`` is one
machine store. Python has no fences. Acquiring and releasing a lock stands in for the full fence: on x86-64 that is an
atomic read-modify-write, which drains the store buffer, and plain loads and stores are already acquire and release.
Other machines make no such promise, which is why the binding's own rings are in C.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque

from xebec import _protocol as p
from xebec._blocks import Block, Float64s, Statuses, codecs
from xebec._bytes import ByteStrings
from xebec._tensors import Signature, TensorSpec, parse_spec

# Enough for a start of Python with numpy on a busy machine. Only a broken worker waits that long.
PATIENCE_S = 60

F_SEAL_FUTURE_WRITE = 0x10
SEAL_A = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
SEAL_B = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

TAIL, HEAD, SLEEP = 128 // 8, 256 // 8, 384 // 4

_fence_lock = threading.Lock()


def fence():
    with _fence_lock:
        pass


def specs(declared, name):
    """{"x": "float32[2]"} or "float32[2]" as tensors."""
    if isinstance(declared, str):
        declared = {name: declared}
    return tuple(parse_spec(k, v) for k, v in declared.items())


BYTES = TensorSpec("", "bytes", ())


class Segment:
    def __init__(self, role, generation, entries, size):
        self.fd = os.memfd_create(f"xebec-{'ab'[role - 1]}-{generation}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)
        p._CONTROL.pack_into(self.map, 0, p.SEGMENT_MAGIC, generation, entries, size, role)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEAL_A if role == p.ROLE_A else SEAL_B)
        view = memoryview(self.map)
        self.u64, self.u32 = view.cast("Q"), view.cast("I")


class Gateway:
    """One worker process and its gateway. It is a context manager: the exit kills what still runs."""

    def __init__(self, source, tmp_path, inputs="bytes[]", outputs="bytes[]", *, pure=False, contexts=False, entries=16,
                 slab_bytes=1 << 20, env=None, pass_fds=(), python=sys.executable, serve=True, version=p.MAJOR):  # fmt: skip
        self.signature = Signature(specs(inputs, "input"), specs(outputs, "output"))
        self.contexts, self.entries, self.slab_bytes = contexts, entries, slab_bytes
        self.version = version
        self.generation = 0
        self.batch = 0
        self.outstanding = {}
        self.answers = deque()
        self.frames, self.control = p.Frames(), deque()
        self.hung_up = False
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind("")  # the kernel picks an abstract name
        self.listener.listen(1)
        self.listener.settimeout(PATIENCE_S)
        script = tmp_path / "model.py"
        script.write_text(source)
        environ = dict(os.environ, XEBEC_SOCKET="@" + self.listener.getsockname()[1:].decode(), XEBEC_TOKEN="token-1",
                       XEBEC_MODEL="digits", XEBEC_VERSION="7")  # fmt: skip
        environ.pop("XEBEC_PURE", None)
        if pure:
            environ["XEBEC_PURE"] = "1"
        environ.update(env or {})
        self.process = subprocess.Popen([python, str(script)], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, pass_fds=pass_fds)  # fmt: skip
        self.sock = None
        try:
            if serve:
                self.greet()
                self.grow()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.communicate()
        self.listener.close()
        if self.sock:
            self.sock.close()

    # -- the socket --

    def accept(self):
        """Waits for the worker's connection or its end, whichever comes first."""
        child = os.pidfd_open(self.process.pid)
        try:
            ready, _, _ = select.select([self.listener, child], [], [], PATIENCE_S)
        finally:
            os.close(child)
        if self.listener not in ready:
            raise AssertionError(
                f"the worker ended before it connected:\n{self.process.communicate(timeout=PATIENCE_S)[1].decode()}"
            )
        self.sock, _ = self.listener.accept()
        self.sock.settimeout(PATIENCE_S)
        kind, payload = self.frame()
        assert kind == p.HELLO
        self.hello = p.decode_hello(payload)
        self.ring_offered = bool(self.hello.capabilities & p.CAN_RING)

    def greet(self, mode=None):
        self.accept()
        self.ring = self.ring_offered
        if mode is None:
            more = p.CAN_PARAMETERS | p.CAN_CALLS | p.CAN_STREAMS if self.version >= 2 else 0
            mode = (p.CAN_RING if self.ring else 0) | (p.CAN_CONTEXTS if self.contexts else 0) | (self.hello.capabilities & more)
        self.send(p.WELCOME, p.encode_welcome(p.Welcome(self.version, 0, mode, 1, "digits", "7", self.signature)))

    def grow(self, slab_bytes=None):
        """Sends segments of the next generation and waits for READY."""
        self.slab_bytes = slab_bytes or self.slab_bytes
        self.new_segments()
        self.send_segments()
        assert self.frame() == (p.READY, p.encode_ready(self.generation))
        for segment in (self.a, self.b):
            os.close(segment.fd)

    def new_segments(self):
        self.generation += 1
        self.slab = p.slab_offset(self.entries)
        self.size = self.slab + self.slab_bytes
        self.a, self.b = (Segment(role, self.generation, self.entries, self.size) for role in (p.ROLE_A, p.ROLE_B))
        self.put = self.taken = self.rung = 0
        self.bump_in = self.bump_out = self.slab

    def send_segments(self, fds=None, piecewise=False):
        m = p.Segments(self.generation, self.entries, self.size, self.size)
        fds = array.array("i", [self.a.fd, self.b.fd] if fds is None else fds)
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        frame = p.frame(p.SEGMENTS, p.encode_segments(m))
        first = 1 if piecewise else len(frame)
        self.sock.sendmsg([frame[:first]], control)
        for byte in frame[first:]:
            self.sock.sendall(bytes([byte]))

    def send(self, kind, payload=b""):
        self.sock.sendall(p.frame(kind, payload))

    def read(self):
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.hung_up = self.hung_up or not data
        for kind, payload in self.frames.feed(data):
            if kind == p.RESPONSE:
                self.answers.append(p.decode_response(payload))
            else:
                self.control.append((kind, payload))

    def frame(self):
        """The next frame that is not a response."""
        while not self.control:
            assert not self.hung_up, f"the worker hung up:\n{self.process.communicate(timeout=PATIENCE_S)[1].decode()}"
            self.read()
        return self.control.popleft()

    def wait(self):
        """The worker's exit status and what it wrote to stderr."""
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err.decode()

    # -- the rings --

    def request(self, kind, queries=0, in_off=0, in_len=0, out_off=0, out_cap=0, batch=None):
        if batch is None:
            self.batch += 1
            batch = self.batch
        q = p.Request(batch, self.generation, kind, queries, in_off, in_len, out_off, out_cap, 0)
        if not self.ring:
            self.send(p.REQUEST, p.encode_request(q))
        else:
            at = p.CONTROL_BYTES + 64 * (self.put % self.entries)
            self.a.map[at : at + 64] = p.encode_request(q)
            self.put += 1
            self.a.u64[TAIL] = self.put
            fence()
            sleep = self.b.u32[SLEEP]
            if sleep & 1 and sleep != self.rung:
                self.rung = sleep
                self.sock.sendall(b"\1")
        self.outstanding[batch] = q
        return q

    def take(self):
        """Moves the ring's responses to answers."""
        while self.ring and self.taken != self.b.u64[TAIL]:
            at = p.CONTROL_BYTES + 64 * (self.taken % self.entries)
            self.answers.append(p.decode_response(self.b.map[at : at + 64]))
            self.taken += 1
            self.a.u64[HEAD] = self.taken

    def answer(self):
        """The next response, checked against its request."""
        self.take()
        while not self.answers:
            assert not self.hung_up, f"the worker hung up:\n{self.process.communicate(timeout=PATIENCE_S)[1].decode()}"
            if self.ring:
                self.a.u32[SLEEP] += 1
                fence()
                if self.taken == self.b.u64[TAIL]:
                    self.read()
                self.a.u32[SLEEP] += 1
                self.take()
            else:
                self.read()
        r = self.answers.popleft()
        q = self.outstanding.pop(r.batch)
        assert (r.generation, r.out_off) == (q.generation, q.out_off)
        assert r.out_len <= q.out_cap
        return r

    # -- blocks --

    def place(self, raw):
        """Writes a block into A. Space is never reused within a generation."""
        at = self.bump_in
        self.bump_in += (len(raw) + 63) & ~63
        assert self.bump_in <= self.size, "the test's slab is too small"
        self.a.map[at : at + len(raw)] = raw
        return at, len(raw)

    def grant(self, size):
        at = self.bump_out
        self.bump_out += (size + 63) & ~63
        assert self.bump_out <= self.size, "the test's slab is too small"
        return at, size

    def block(self, columns, n, *extra):
        """The input block of n queries: one value per input, then contexts and labels."""
        sections = codecs(self.signature.inputs, "input") + codecs([BYTES] * len(extra), "extra")
        return render(Block(sections), [*columns, *extra], n)

    def submit(self, columns, n, contexts=None, out_cap=4096, kind=p.PREDICT, labels=None, parameters=None, calls=None):
        """Sends n queries, with one value per declared input."""
        extra = [x for x in (contexts, parameters, calls, labels) if x is not None]
        return self.request(kind, n, *self.place(self.block(columns, n, *extra)), *self.grant(out_cap))

    def predict(self, *columns, n=None, contexts=None, out_cap=4096):
        """Sends one batch. Returns its response, and its outputs or its text."""
        self.submit(columns, len(columns[0]) if n is None else n, contexts, out_cap)
        r = self.answer()
        return r, self.outputs(r)

    def outputs(self, r):
        """The outputs of an OK response (a list if there are several), or the text of a failed one."""
        raw = self.b.map[r.out_off : r.out_off + r.out_len]
        if r.status in (p.MODEL_ERROR, p.BAD_OUTPUT):
            return raw.decode("utf-8")
        if r.status not in (p.OK, p.MORE) or not r.out_len:
            return None
        sections = codecs(self.signature.outputs, "output")
        if r.flags & p.FLAG_CONFIDENCES:
            sections.append(Float64s("confidences"))
        if r.flags & p.FLAG_STATUSES:
            sections += [Statuses(), ByteStrings(TensorSpec("texts", "bytes", ()), "texts", True)]
        values = Block(sections).read(raw, 0, len(raw), r.queries)
        return values[0] if len(values) == 1 else values

    def stop(self):
        """Drains an idle worker, which must exit with 0 and print nothing."""
        self.send(p.DRAIN)
        assert self.wait() == (0, "")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)


def render(block, values, n):
    laid_out = block.prepare(values, n)
    raw = bytearray(laid_out[0])
    block.write(raw, 0, laid_out, n)
    return bytes(raw)
