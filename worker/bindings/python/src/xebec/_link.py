"""The transport of descriptors, in two implementations: through the rings (the C extension) or the socket (pure
Python).

Both have ``next(midframe)``, ``take()``, ``reply(...)``, ``push(...)`` and ``ring()`` as :mod:`xebec._ring` describes them.
Over the socket a request arrives as a frame, so ``next`` returns only bytes and ``take`` always returns None.
"""

from __future__ import annotations

import array
import mmap
import os
import select
import socket
import sys
import time
from collections import deque
from typing import Any, NamedTuple, Optional

from . import _protocol as p

_clock = time.monotonic_ns

RECEIVE_BYTES = 65_536  # one read usually takes a whole frame; the parser joins the others
MAX_FDS = 8  # the protocol sends two; more are reported rather than lost silently
_CONTROL_BYTES = socket.CMSG_SPACE(MAX_FDS * 4)
_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)  # computing them as enums takes longer than the system call


def ring_module() -> Any:
    """The C extension, or None if it was not built or the environment has XEBEC_PURE=1."""
    if os.environ.get("XEBEC_PURE") == "1":
        return None
    try:
        from . import _ring
    except ImportError:
        return None
    return _ring


class Waits:
    """When to expect the next request, in nanoseconds. Package api/busypoll has the reasons."""

    _FAR_BOUNDS, _WEIGHT, _MAX_VAIN = 4, 8, 10

    def __init__(self, bound: int) -> None:
        self.bound, self._mean = bound, self._FAR_BOUNDS * bound
        self._vain = self._skip = 0
        self._began, self.waiting, self._spun = 0, False, False

    def idle(self, now: int) -> int:
        """Says that there is nothing to do at now. Returns until when to spin."""
        if self.bound <= 0 or self.waiting:
            return now
        self.waiting, self._began, self._spun = True, now, self._mean <= self.bound and not self._skip
        self._skip = max(self._skip - 1, 0)
        return now + self.bound if self._spun else now

    def arrived(self, now: int) -> None:
        """Says that a request has come, after idle."""
        self.waiting = False
        wait = now - self._began
        if self._spun and wait > self.bound:
            self._vain = min(self._vain + 1, self._MAX_VAIN)
            self._skip = 1 << self._vain
        elif self._spun:
            self._vain = max(self._vain - 1, 0)
        change = min(wait, self._FAR_BOUNDS * self.bound) - self._mean
        self._mean += change // self._WEIGHT if change >= 0 else -(-change // self._WEIGHT)


class SocketLink:
    """Descriptors as frames. A worker also receives WELCOME and SEGMENTS this way, before it has a ring."""

    def __init__(self, sock: socket.socket, wake: int, busy_micros: int = 0) -> None:
        self._sock, self._wake, self._waits = sock, wake, Waits(busy_micros * 1000)
        self._pushed: deque[bytes] = deque()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(wake, select.POLLIN)

    def next(self, midframe: bool) -> Optional[tuple[bytes, tuple[int, ...]]]:
        """Waits. Returns the bytes and descriptors that were read, or None after a signal. Empty bytes mean that the
        peer hung up."""
        self.ring()
        for fd, _ in self._spin() or self._poll.poll():
            if fd == self._wake:
                os.read(fd, 64)
                return None
        try:
            data, control, _, _ = self._sock.recvmsg(RECEIVE_BYTES, _CONTROL_BYTES, _FLAGS)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b"", ()
        if self._waits.waiting:
            self._waits.arrived(_clock())
        fds = array.array("i")
        for level, kind, raw in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
        return data, tuple(fds)

    def _spin(self) -> list[tuple[int, int]]:
        """Polls without sleeping while a request is likely to come soon. Returns the descriptors that are ready."""
        if not self._waits.bound:
            return []
        now = _clock()
        until = self._waits.idle(now)
        while now < until:
            ready = self._poll.poll(0)
            if ready:
                return ready
            now = _clock()
        return []

    def take(self) -> None:
        """Returns None: requests are frames here."""

    def reply(self, *fields: int) -> None:
        """Sends a response."""
        self._sock.sendall(p.response_frame(*fields))

    def push(self, *fields: int) -> None:
        """Keeps a response for the next ring or wait."""
        self._pushed.append(p.response_frame(*fields))

    def ring(self) -> None:
        """Sends what was pushed, on any thread."""
        frames = []
        while self._pushed:
            try:
                frames.append(self._pushed.popleft())
            except IndexError:  # another thread took it
                break
        if frames:
            self._sock.sendall(b"".join(frames))


class Maps(NamedTuple):
    """One generation of segments. The mappings are never closed explicitly. Each is unmapped when its last view is
    gone, which may be the model's: an array over a closed mapping would read freed memory."""

    generation: int
    entries: int
    a: Any
    b: Any
    size_a: int
    size_b: int
    slab: int


def map_segments(m: p.Segments, fds: tuple[int, ...]) -> Maps:
    """Maps A read-only and B read-write, after checking that they match SEGMENTS. Closes the descriptors."""
    try:
        if len(fds) != 2:
            raise p.ProtocolError(f"SEGMENTS came with {len(fds)} descriptors, expected 2")
        for name, fd, size in (("A", fds[0], m.size_a), ("B", fds[1], m.size_b)):
            actual = os.fstat(fd).st_size
            if actual != size:
                raise p.ProtocolError(f"segment {name} has {actual} bytes, SEGMENTS says {size}")
        a = _map(fds[0], m.size_a, mmap.PROT_READ)
        b = _map(fds[1], m.size_b, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as e:
        raise p.ProtocolError(f"cannot map segments of {m.size_a} and {m.size_b} bytes: {e}") from e
    finally:
        for fd in fds:
            os.close(fd)
    p.check_control(a[:64], p.ROLE_A, m)
    p.check_control(b[:64], p.ROLE_B, m)
    return Maps(*m[:2], a, b, *m[2:], p.slab_offset(m.entries))


def _map(fd: int, size: int, prot: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, mmap.MAP_SHARED, prot, trackfd=False)
    # Before 3.13 a mapping keeps a duplicate of its descriptor, marked CLOEXEC, until it is unmapped.
    return mmap.mmap(fd, size, mmap.MAP_SHARED, prot)
