"""The worker's state machine: what each frame and each request does. Section 1 of ``api/spec/worker.md`` describes a
worker's life. :mod:`xebec._link` transports descriptors.

There is one loop. A model without concurrency runs in it: a request is answered before the next is read. With
concurrency, :mod:`xebec._concurrent` runs predictions, and the loop only receives. What outlives a request is the
rendered output of a batch that answered NEED_MORE.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import Any, NamedTuple, NoReturn, Optional

from . import _calls
from . import _protocol as p
from ._check import is_async, is_generator, place
from ._link import Maps, SocketLink, map_segments
from ._model import Answer, Handlers, Model, cut, error_text, watched
from ._tensors import BadOutput, Error

VERSION = "0.1.0"
BINDING = f"xebec-python/{VERSION}"

EXIT_LOST = 1  # the gateway is gone, refused us or broke the protocol
EXIT_TERMINATED = 128 + signal.SIGTERM  # a second SIGTERM; the status that a shell reports for that signal

_clock = time.perf_counter_ns


class Launch(NamedTuple):
    """The gateway's environment variables."""

    socket: str
    token: str
    model: str
    version: str
    busy_micros: int = 0  # how long to spin before sleeping, while a request is expected


class _Kept(NamedTuple):
    """The outputs of a batch that waits for GRANT or DISCARD. They are copies: the input block, which they may have
    been views of, is the gateway's again, and the model may reuse its arrays."""

    kind: int
    status: int
    queries: int
    flags: int
    work_nanos: int
    block: bytearray


class Worker:
    def __init__(self, handlers: Handlers, launch: Launch, ring: Any) -> None:
        self._handlers, self._launch, self._ring = handlers, launch, ring
        self._model: Optional[Model] = None
        self._mode = self._major = 0
        self._maps: Optional[Maps] = None
        self._kept: dict[int, _Kept] = {}
        self._frames = p.Frames()
        self._fds: list[int] = []
        self._pid = os.getpid()
        self._stop_signals = 0
        self._leaving_sent = False
        self._executor: Any = None
        self._lines = False  # whether the model may call others
        self._streams: Any = None  # the executor, if the model answers in streams
        self._draining = False

    def run(self) -> None:
        """Connects and serves until DRAIN. The process exits if the gateway is gone, refuses the worker or breaks the
        protocol."""
        _calls.serving = True
        self._wake, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        handlers = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.register_at_fork(after_in_child=lambda: self._forked(handlers))
        try:
            self._connect()
            self._loop()
            if self._executor:
                self._executor.wait()
        except BaseException as e:
            self._lost(e)
        self._sock.close()

    def _lost(self, e: BaseException) -> NoReturn:
        """Ends the process after an error of the protocol or the connection, on any thread."""
        if isinstance(e, p.ProtocolError):
            self._die(f"the gateway broke the worker protocol: {e}")
        if isinstance(e, (BrokenPipeError, ConnectionResetError)):
            os._exit(EXIT_LOST)
        raise e

    def _connect(self) -> None:
        path = self._launch.socket
        try:
            self._sock.connect("\0" + path[1:] if path.startswith("@") else path)
        except OSError as e:
            self._die(f"cannot connect to the gateway at XEBEC_SOCKET={path}: {e.strerror or e}. Is it still running?")
        h = self._handlers
        capabilities = (
            (p.CAN_RING if self._ring else 0)
            | (p.CAN_FEEDBACK if h.feedback else 0)
            | (p.CAN_ACCURACY if h.accuracy else 0)
            | (p.CAN_CONTEXTS if h.contexts else 0)
            | (p.CAN_CONFIDENCES if h.confidences else 0)
            | (p.CAN_PARAMETERS if h.parameters else 0)
            | (p.CAN_CALLS if h.calls else 0)
            | (p.CAN_STREAMS if h.stream else 0)
            | p.CAN_LINES
        )
        launch = self._launch
        hello = p.Hello(p.MAJOR, p.MINOR, capabilities, launch.token, launch.model, launch.version, BINDING, None, h.concurrency)
        self._sock.sendall(p.frame(p.HELLO, p.encode_hello(hello)))
        self._link: Any = SocketLink(self._sock, self._wake, launch.busy_micros)

    def _loop(self) -> None:
        """Runs until DRAIN. ``link.next`` returns the nine fields of a request, two values from the socket, or None."""
        frames = self._frames
        while True:
            event = self._link.next(frames.midframe)
            if event is None:
                pass
            elif len(event) == 9:
                self._on_request(event)
            else:
                self._on_bytes(*event)
            if self._draining and (not self._streams or self._streams.empty()):
                self._link.ring()
                return
            if self._stop_signals and not self._leaving_sent:
                self._leaving_sent = True
                self._sock.sendall(p.frame(p.LEAVING, p.encode_leaving("SIGTERM")))

    def _on_bytes(self, data: bytes, fds: tuple[int, ...]) -> None:
        """Handles the frames that data completes."""
        if not data:
            os._exit(EXIT_LOST)
        self._fds += fds
        for kind, payload in self._frames.feed(data):
            if kind == p.REQUEST and self._maps and not self._mode & p.CAN_RING:
                self._on_request(p.decode_request(payload))
            elif kind == p.WELCOME and not self._model:
                self._on_welcome(p.decode_welcome(payload))
            elif kind == p.LINES and self._model and not self._maps and self._mode & p.CAN_LINES:
                p.decode_lines(payload)
                self._on_lines()
            elif kind == p.SEGMENTS and self._model:
                self._on_segments(p.decode_segments(payload))
            elif kind == p.DRAIN and self._maps:
                p.decode_drain(payload)
                self._take_ring()  # they were pushed before DRAIN was sent, so they are there
                if self._streams:
                    self._streams.on_empty = lambda: os.write(self._wake_writer, b"\0")
                self._draining = True
            elif kind == p.CANCEL and self._streams:
                batch = p.decode_cancel(payload)
                self._take_ring()  # the request may still be there
                stream = self._streams.find(batch)
                if stream:
                    stream.discard()
            elif kind == p.REFUSED:
                code, text = p.decode_refused(payload)
                if is_generator(self._handlers.predict):
                    text += f". predict{place(self._handlers.predict)} is a generator function"
                self._die(f"the gateway refused this worker: {text} (code {code}, {p.REFUSED_WHY.get(code, 'unknown')})")
            else:
                raise p.ProtocolError(f"frame type 0x{kind:02x} is not expected here")

    def _take_ring(self) -> None:
        for request in iter(self._link.take, None):
            self._on_request(request)

    def _on_welcome(self, m: p.Welcome) -> None:
        if not 1 <= m.major <= p.MAJOR:
            raise p.ProtocolError(f"unsupported version {m.major}.{m.minor}; this binding speaks 1.0 to {p.MAJOR}.{p.MINOR}")
        if m.mode & p.CAN_RING and not self._ring:
            raise p.ProtocolError("WELCOME has rings, but HELLO did not offer them")
        self._mode, self._major = m.mode, m.major
        self._model = Model(self._handlers, m.signature, bool(m.mode & p.CAN_CONTEXTS), mode_more=m.mode)
        h = self._handlers
        if h.stream:
            if not m.mode & p.CAN_STREAMS:
                self._die("this model answers in streams, for which the gateway is too old: it needs version 2 of the worker protocol")
            from . import _streams

            self._executor = self._streams = _streams.executor(h, self._lost)
            return
        if h.concurrency > 1 or is_async(h.predict):
            from . import _concurrent  # asyncio takes longer to import than the rest of a small worker

            self._executor = _concurrent.executor(h.predict, h.concurrency, self._lost)

    def _on_lines(self) -> None:
        if not self._fds or self._lines:
            raise p.ProtocolError("LINES came twice, or without a descriptor")
        self._lines = True
        _calls.open_lines(self._fds.pop(0))

    def begins(self, q: tuple[int, ...]) -> None:
        """Notes, on the thread or in the task that runs predict for a request, what its calls belong to."""
        if self._lines:
            _calls.current.set((q[0], q[3]))

    def _on_segments(self, m: p.Segments) -> None:
        if self._maps and m.generation <= self._maps.generation:
            raise p.ProtocolError(f"SEGMENTS of generation {m.generation} after {self._maps.generation}")
        fds, self._fds = tuple(self._fds), []
        self._maps = maps = map_segments(m, fds)  # the old ones are unmapped when their last view is gone
        if self._mode & p.CAN_RING:
            busy = self._launch.busy_micros
            self._link = self._ring.Ring(self._sock.fileno(), self._wake, maps.a, maps.b, maps.entries, p.ProtocolError, busy)
        self._sock.sendall(p.frame(p.READY, p.encode_ready(m.generation)))

    def _on_request(self, q: tuple[int, ...]) -> None:
        """q has the nine fields of a request, as _protocol.Request does."""
        batch, generation, kind, queries, in_off, in_len, out_off, out_cap, _ = q
        maps = self._maps
        assert maps is not None
        p.check_request(kind, queries, in_off, out_off)
        if kind == p.DISCARD:
            stream = self._streams and self._streams.find(batch)
            if stream:
                self._kept.pop(batch, None)
                stream.discard(q, maps)
                return
            kept = self._take_kept(batch, "DISCARD")
            self._link.reply(batch, generation, kept.kind, p.OK, kept.queries, 0, out_off, 0, 0, 0)
            return
        if generation != maps.generation:
            raise p.ProtocolError(f"a request of generation {generation}, but generation {maps.generation} is mapped")
        if in_len and not maps.slab <= in_off <= in_off + in_len <= maps.size_a:
            raise p.ProtocolError(f"batch {batch}: the input block at {in_off} with {in_len} bytes lies outside the slab of A")
        if out_cap and not maps.slab <= out_off <= out_off + out_cap <= maps.size_b:
            raise p.ProtocolError(f"batch {batch}: the output block at {out_off} with {out_cap} bytes lies outside the slab of B")
        if kind == p.PREDICT and self._executor:
            self._executor.submit(self, q, maps)
        elif kind == p.PREDICT:
            self.predict(q, maps)
        elif kind == p.GRANT:
            self._grant(q, maps)
        elif kind == p.FEEDBACK and self._handlers.feedback:
            self._link.ring()  # what was pushed does not wait for the model's code
            self._feedback(q)
        elif kind == p.ACCURACY and self._handlers.accuracy:
            self._link.ring()
            self._accuracy(q)
        else:
            self._link.reply(batch, generation, kind, p.UNSUPPORTED, queries, 0, out_off, 0, 0, 0)

    def arguments(self, q: tuple[int, ...], maps: Maps) -> tuple[Any, ...]:
        """The arguments of predict for a request."""
        model = self._model
        assert model is not None
        return model.predict_arguments(model.predict_block.read(maps.a, q[4], q[5], q[3]), q[3])

    def predict(self, q: tuple[int, ...], maps: Maps) -> None:
        """Answers a PREDICT."""
        self.begins(q)
        started = _clock()
        try:
            arguments = self.arguments(q, maps)
        except Error as e:  # parameters
            self.answer(q, maps, e, 0)
            return
        try:
            returned = self._handlers.predict(*arguments)
        except BaseException as e:  # a library that calls sys.exit on bad input must not end the worker
            self.answer(q, maps, e, _clock() - started)
            return
        self.answer(q, maps, returned, _clock() - started)

    def answer(self, q: tuple[int, ...], maps: Maps, returned: Any, work: int) -> None:
        """Answers a PREDICT with what predict returned or raised."""
        model, queries = self._model, q[3]
        assert model is not None
        refused = isinstance(returned, Error) and returned.refuses
        if isinstance(returned, BaseException) and not (refused and queries == 1 and self._major >= 2):
            self._fail(q, maps, p.MODEL_ERROR, error_text(returned), work)
            return
        try:
            answer = model.refuse(returned, 1) if isinstance(returned, Error) else model.answer(returned, queries)
        except BadOutput as e:
            self._fail(q, maps, p.BAD_OUTPUT, str(watched(e)), work)
        except BaseException as e:  # an object's own length, iterator or conversion failed
            self._fail(q, maps, p.BAD_OUTPUT, error_text(e), work)
        else:
            if answer.statuses and self._major < 2:
                self._fail(q, maps, p.MODEL_ERROR, "predict refused queries, which needs version 2 of the protocol", work)
                return
            self._put(q, maps, answer, queries, work)

    def _feedback(self, q: tuple[int, ...]) -> None:
        model, maps, feedback = self._model, self._maps, self._handlers.feedback
        assert model is not None and maps is not None and feedback is not None
        values = model.feedback_block.read(maps.a, q[4], q[5], q[3])
        started = _clock()
        try:
            feedback(*model.feedback_arguments(values, q[3]))  # labels that are nested too deeply also fail here
        except BaseException as e:
            self._fail(q, maps, p.MODEL_ERROR, error_text(e), _clock() - started)
            return
        self._link.reply(q[0], q[1], p.FEEDBACK, p.OK, q[3], 0, q[6], 0, 0, _clock() - started)

    def _accuracy(self, q: tuple[int, ...]) -> None:
        model, maps, accuracy = self._model, self._maps, self._handlers.accuracy
        assert model is not None and maps is not None and accuracy is not None
        started = _clock()
        try:
            value = accuracy()
        except BaseException as e:
            self._fail(q, maps, p.MODEL_ERROR, error_text(e), _clock() - started)
            return
        work = _clock() - started
        try:
            laid_out = model.accuracy_block.prepare([[value]], 1)
        except BadOutput as e:
            self._fail(q, maps, p.BAD_OUTPUT, str(watched(e)), work)
        else:
            self._put(q, maps, Answer(model.accuracy_block, laid_out), 1, work)

    def _put(self, q: tuple[int, ...], maps: Maps, answer: Answer, n: int, work: int) -> None:
        """Writes an output block of n items into the grant and answers OK, or keeps it and answers NEED_MORE."""
        batch, generation, kind, queries, _, _, out_off, out_cap, _ = q
        block, laid_out, confidences, statuses = answer
        size = laid_out[0]
        flags = (p.FLAG_CONFIDENCES if confidences else 0) | (p.FLAG_STATUSES if statuses else 0)
        try:
            if size <= out_cap:
                block.write(maps.b, out_off, laid_out, n)
            else:
                rendered = bytearray(size)
                block.write(rendered, 0, laid_out, n)
        except BaseException as e:  # for example a cast that overflows, if the model told numpy to raise
            self._fail(q, maps, p.BAD_OUTPUT, error_text(e), work)
            return
        if size <= out_cap:
            self._link.reply(batch, generation, kind, p.OK, queries, flags, out_off, size, 0, work)
        else:
            self._kept[batch] = _Kept(kind, p.OK, queries, flags, work, rendered)
            self._link.reply(batch, generation, kind, p.NEED_MORE, queries, 0, out_off, 0, size, work)

    def _grant(self, q: tuple[int, ...], maps: Maps) -> None:
        batch, generation, _, _, _, _, out_off, out_cap, _ = q
        stream = self._streams and self._streams.find(batch)
        if stream and batch not in self._kept:
            stream.grant(q, maps)
            return
        kept = self._take_kept(batch, "GRANT")
        size = len(kept.block)
        if size > out_cap:
            raise p.ProtocolError(f"GRANT for batch {batch} has {out_cap} bytes, but NEED_MORE was for {size}")
        maps.b[out_off : out_off + size] = kept.block
        self._link.reply(batch, generation, kept.kind, kept.status, kept.queries, kept.flags, out_off, size, 0, kept.work_nanos)

    def _take_kept(self, batch: int, what: str) -> _Kept:
        kept = self._kept.pop(batch, None)
        if kept is None:
            raise p.ProtocolError(f"{what} for batch {batch}, which did not answer NEED_MORE")
        return kept

    def _fail(self, q: tuple[int, ...], maps: Maps, status: int, text: str, work: int) -> None:
        """Answers with an error text for operators instead of sections."""
        batch, generation, kind, queries, _, _, out_off, _, _ = q
        self._link.reply(batch, generation, kind, status, queries, 0, out_off, self.write_text(q, maps, text), 0, work)

    def write_text(self, q: tuple[int, ...], maps: Maps, text: str) -> int:
        """Writes an error text into a grant, and returns its size."""
        raw = cut(text, q[7])
        maps.b[q[6] : q[6] + len(raw)] = raw
        return len(raw)

    @property
    def model(self) -> Model:
        """The model, after WELCOME."""
        assert self._model is not None
        return self._model

    def push(self, *fields: int) -> None:
        """Sends a response, from any thread, when ring is called or the worker's loop waits."""
        self._link.push(*fields)

    def ring(self) -> None:
        """Sends what was pushed, from any thread."""
        self._link.ring()

    def keep(self, batch: int, status: int, outputs: int, flags: int, work: int, rendered: bytearray) -> None:
        """Keeps outputs of a stream for the GRANT that answers NEED_MORE."""
        self._kept[batch] = _Kept(p.PREDICT, status, outputs, flags, work, rendered)

    def _on_signal(self, signum: int, frame: object) -> None:
        """SIGTERM, and SIGINT, which a terminal sends to the whole group, stop the worker in order. A second signal
        ends it at once."""
        if os.getpid() != self._pid:  # a child between its fork and _forked
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        self._stop_signals += 1
        if self._maps is None:
            raise SystemExit(0)  # nothing was promised yet, and LEAVING is not legal yet
        if self._stop_signals > 1:
            os._exit(EXIT_TERMINATED)

    def _forked(self, handlers: dict[signal.Signals, Any]) -> None:
        """Runs in a child that the model forks. The child must die of SIGTERM like any process, and the gateway must
        see our hang-up even while the child lives."""
        signal.set_wakeup_fd(-1)
        for signum, handler in handlers.items():
            signal.signal(signum, handler if handler is not None else signal.SIG_DFL)
        self._sock.close()

    def _die(self, message: str) -> NoReturn:
        print(f"xebec: {message}", file=sys.stderr, flush=True)
        os._exit(EXIT_LOST)
