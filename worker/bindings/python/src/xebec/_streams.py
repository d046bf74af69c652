"""Models that answer in streams: generators on threads, async generators on one event loop, and steps over all running
sequences at once.

The protocol gives each stream turns (section 4.1 of ``api/spec/worker.md``): in its turn the worker answers with outputs,
then it waits for a GRANT. :class:`Stream` keeps to that for one stream. The model's code runs on threads of its own; the
worker's loop passes GRANT, DISCARD and CANCEL on. Whichever of the two makes an answer possible sends it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

from . import _protocol as p
from ._concurrent import Threads
from ._model import END, Last, error_text, watched
from ._tensors import BadOutput, Error

# How many outputs, and of about how many bytes, a model may be ahead of the reader of its stream.
AHEAD, AHEAD_BYTES = 16, 64 * 1024

# How long all threads together may take to end, in nanoseconds: some may be busy with streams that were cancelled.
WAIT_NANOS = 1_000_000_000

_clock = time.perf_counter_ns


class _Output(NamedTuple):
    block: Any
    values: list[Any]
    laid_out: Any


class Stream:
    """One query and the outputs of its stream. Any thread may call its methods. What they send waits for ring, so that one
    bell is enough for the outputs of many streams."""

    def __init__(self, streams: Streams, worker: Any, q: tuple[int, ...], maps: Any) -> None:
        self._streams, self._worker, self.batch = streams, worker, q[0]
        self._lock = threading.Lock()
        self._request = q
        self._turn: Any = (q, maps)  # the request to answer; None while the turn is the gateway's
        self._ahead: deque[_Output] = deque()
        self._ahead_bytes = 0
        self._first = True
        self._final: Any = None  # how the stream has ended: True, or what was raised
        self.closed = False  # nothing more is sent
        self._work = 0
        self.on_change: Callable[[], Any] = lambda: None  # called, perhaps with the lock held, when room or closed may have changed

    def begins(self) -> None:
        """The model's code begins, on this thread or in this task."""
        self._worker.begins(self._request)

    def over(self) -> bool:
        """Whether the model's code is to end."""
        return self.closed or self._final is not None

    def full(self) -> bool:
        """Whether the model is far enough ahead of its reader."""
        return (len(self._ahead) >= AHEAD or self._ahead_bytes >= AHEAD_BYTES) and not self.over()

    def ring(self) -> None:
        """Sends what the methods have left."""
        self._worker.ring()

    def put(self, output: Any, work: int = 0, last: bool = False) -> None:
        """Sends one output, now or when the turn comes. After the last one the stream ends."""
        try:
            block, values = self._worker.model.output_of_stream(output)
            if not self._turn:
                values = [own(v) for v in values]  # the model may change them before they are sent
            laid_out = block.prepare(values, 1)
        except BadOutput as e:
            self.end(e)
            return
        except BaseException as e:  # an object's own length, iterator or conversion failed
            self.end(BadOutput(error_text(e)))
            return
        with self._lock:
            if self.over():
                return
            self._work += work
            if last:
                self._final = True
            self._ahead.append(_Output(block, values, laid_out))
            self._ahead_bytes += laid_out[0]
            self._flush()

    def end(self, how: Any = True, work: int = 0) -> None:
        """Ends the stream: after all outputs (True), or with what was raised."""
        with self._lock:
            if self._final is None:
                self._final = how
                self._work += work
            self._flush()

    def grant(self, q: tuple[int, ...], maps: Any) -> None:
        """The turn is the worker's again."""
        with self._lock:
            full, self._turn = self.full(), (q, maps)
            self._flush()
        if full:
            self.on_change()

    def discard(self, q: Optional[tuple[int, ...]] = None, maps: Any = None) -> None:
        """Nobody wants the rest: DISCARD, with its request, or CANCEL."""
        with self._lock:
            if q:
                self._turn = (q, maps)
            self._close()
            if self._turn:
                self._reply(p.OK, 0, 0, 0)
                self._streams.answered(self)
        self.on_change()

    def _close(self) -> None:
        self.closed = True
        self._ahead.clear()
        self._ahead_bytes = 0

    def _reply(self, status: int, count: int, flags: int, size: int, need: int = 0) -> None:
        (batch, generation, _, _, _, _, out_off, _, _), _ = self._turn
        work, self._work = self._work, 0
        self._turn = None
        self._worker.push(batch, generation, p.PREDICT, status, count, flags, out_off, size, need, work)

    def _flush(self) -> None:
        """Answers, if it is the worker's turn and there is something to say. The lock is held."""
        if not self._turn or self._streams.is_answered(self):
            return
        if self._ahead:
            self._send()
        elif self.closed or self._final is True:
            self._finish(p.OK, None)
        elif isinstance(self._final, Error) and self._final.refuses:
            self._refuse(self._final)
        elif isinstance(self._final, BadOutput):
            self._finish(p.BAD_OUTPUT, str(self._final))
        elif self._final is not None:
            self._finish(p.MODEL_ERROR, error_text(self._final))

    def _send(self) -> None:
        block, first, laid_out = self._ahead.popleft()
        n, values = 1, [first]
        self._ahead_bytes -= laid_out[0]
        while self._ahead and not self._first and self._ahead[0].block is block and n < p.MAX_STREAM_OUTPUTS:
            output = self._ahead.popleft()
            self._ahead_bytes -= output.laid_out[0]
            values.append(output.values)
            n += 1
        q, maps = self._turn
        flags = p.FLAG_CONFIDENCES if block is self._worker.model.confident_block else 0
        try:
            if n > 1:
                laid_out = block.prepare([[item for part in parts for item in part] for parts in zip(*values)], n)
            size = laid_out[0]
            if size <= q[7]:
                block.write(maps.b, q[6], laid_out, n)
            else:
                rendered = bytearray(size)
                block.write(rendered, 0, laid_out, n)
        except BaseException as e:
            self._close()
            self._finish(p.BAD_OUTPUT, str(watched(e)) if isinstance(e, BadOutput) else error_text(e))
            return
        self._first = False
        if size <= q[7] and self._final is True and not self._ahead:
            self.closed = True
            self._reply(p.OK, n, flags, size)
            self._streams.answered(self)
        elif size <= q[7]:
            self._reply(p.MORE, n, flags, size)
        else:
            work, self._work = self._work, 0
            self._worker.keep(self.batch, p.MORE, n, flags, work, rendered)
            self._reply(p.NEED_MORE, n, 0, 0, size)

    def _refuse(self, error: Error) -> None:
        model, (q, maps) = self._worker.model, self._turn
        block, laid_out, _, _ = model.refuse(error, 1)
        if laid_out[0] > q[7]:
            self._finish(p.MODEL_ERROR, str(error))
            return
        block.write(maps.b, q[6], laid_out, 1)
        self.closed = True
        self._reply(p.OK, 1, p.FLAG_STATUSES, laid_out[0])
        self._streams.answered(self)

    def _finish(self, status: int, text: Optional[str]) -> None:
        q, maps = self._turn
        self.closed = True
        size = self._worker.write_text(q, maps, text) if text is not None else 0
        self._reply(status, 0, 0, size)
        self._streams.answered(self)


def own(value: Any) -> Any:
    """A copy of what predict yields, or of its inputs."""
    if type(value) in (list, tuple):  # a Call has nothing that changes
        return [own(v) for v in value]
    if isinstance(value, dict):
        return {name: own(v) for name, v in value.items()}
    if isinstance(value, memoryview):
        flat = memoryview(value.tobytes())
        if value.ndim == 1 or not value.nbytes:
            return flat.cast(value.format)  # type: ignore[call-overload]
        return flat.cast(value.format, value.shape)  # type: ignore[call-overload]
    if hasattr(value, "dtype") and hasattr(value, "copy"):
        return value.copy()
    return bytes(value) if isinstance(value, bytearray) else value


class Streams:
    """The open streams of a worker. A subclass runs the model's code."""

    def __init__(self, handlers: Any, lost: Callable[[BaseException], Any]) -> None:
        self._handlers, self._lost = handlers, lost
        self._open: dict[int, Stream] = {}
        self.on_empty: Callable[[], Any] = lambda: None

    def submit(self, worker: Any, q: tuple[int, ...], maps: Any) -> None:
        """Begins a stream."""
        stream = Stream(self, worker, q, maps)
        self._open[stream.batch] = stream
        try:
            arguments = tuple(own(a) for a in worker.arguments(q, maps))  # the input block is the gateway's after the first answer
        except p.ProtocolError:
            raise
        except BaseException as e:
            stream.end(e)
            return
        self.start(stream, arguments)

    def start(self, stream: Stream, arguments: tuple[Any, ...]) -> None:
        """Lets the model's code run for a stream."""
        raise NotImplementedError

    def find(self, batch: int) -> Optional[Stream]:
        """The open stream of a batch."""
        return self._open.get(batch)

    def is_answered(self, stream: Stream) -> bool:
        return stream.batch not in self._open

    def answered(self, stream: Stream) -> None:
        """The last response of a stream was sent."""
        self._open.pop(stream.batch, None)
        if not self._open:
            self.on_empty()

    def empty(self) -> bool:
        """Whether no stream is open."""
        return not self._open

    def wait(self) -> None:
        """Ends the threads. No stream is open."""


class Generators(Streams):
    """Runs each generator on a thread of its own, for all of its life. There are as many threads as the model has concurrency: a generator
    that was cancelled and does not come to its next output keeps its thread, and later streams wait for one."""

    def __init__(self, handlers: Any, lost: Callable[[BaseException], Any]) -> None:
        super().__init__(handlers, lost)
        self._todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._count = threading.Lock()

    def start(self, stream: Stream, arguments: tuple[Any, ...]) -> None:
        with self._count:
            self._busy += 1
            if len(self._threads) < min(self._busy, self._handlers.concurrency):
                thread = threading.Thread(target=self._run, name=f"xebec-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._todo.put((stream, arguments))

    def _run(self) -> None:
        try:
            for stream, arguments in iter(self._todo.get, None):
                if not stream.closed:
                    self._generate(stream, arguments)
                del stream, arguments
                with self._count:
                    self._busy -= 1
        except BaseException as e:
            Threads.end(self._lost, e)

    def _generate(self, stream: Stream, arguments: tuple[Any, ...]) -> None:
        change = threading.Event()
        stream.on_change = change.set
        stream.begins()
        generator, started = None, _clock()
        how: Any = True
        try:
            generator = iter(self._handlers.predict(*arguments))
            for output in generator:
                stream.put(output, _clock() - started)
                stream.ring()
                while stream.full():
                    change.clear()
                    if stream.full():
                        change.wait()
                if stream.over():
                    break
                started = _clock()
        except BaseException as e:  # also a library's sys.exit must not end the worker
            how = e
        stream.end(how, _clock() - started)
        stream.ring()
        close = getattr(generator, "close", None)
        if close:
            try:
                close()
            except BaseException as e:
                _complain("closing the generator of a stream", e)

    def wait(self) -> None:
        for _ in self._threads:
            self._todo.put(None)
        until = _clock() + WAIT_NANOS
        for thread in self._threads:
            thread.join(max(until - _clock(), 0) / 1e9)


class AsyncGenerators(Streams):
    """Runs all async generators on one event loop, each in a task of its own."""

    def __init__(self, handlers: Any, lost: Callable[[BaseException], Any]) -> None:
        super().__init__(handlers, lost)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[Any] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="xebec-asyncio", daemon=True)
        self._thread.start()

    def start(self, stream: Stream, arguments: tuple[Any, ...]) -> None:
        self._loop.call_soon_threadsafe(self._begin, stream, arguments)

    def _begin(self, stream: Stream, arguments: tuple[Any, ...]) -> None:
        change = asyncio.Event()
        task = self._loop.create_task(self._generate(stream, arguments, change))

        def changed() -> None:
            change.set()
            if stream.closed:
                task.cancel()  # so that one that awaits something ends now

        stream.on_change = lambda: self._loop.call_soon_threadsafe(changed)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if stream.closed:
            task.cancel()

    async def _generate(self, stream: Stream, arguments: tuple[Any, ...], change: Any) -> None:
        stream.begins()
        generator, started = None, _clock()
        how: Any = True
        try:
            generator = self._handlers.predict(*arguments)
            async for output in generator:
                stream.put(output, _clock() - started)
                stream.ring()
                while stream.full():
                    change.clear()
                    if stream.full():
                        await change.wait()
                if stream.over():
                    break
                started = _clock()
        except BaseException as e:
            how = e
        stream.end(how, _clock() - started)
        stream.ring()
        close = getattr(generator, "aclose", None)
        if close:
            try:
                await close()
            except BaseException as e:
                if not stream.closed or not isinstance(e, asyncio.CancelledError):
                    _complain("closing the generator of a stream", e)

    def wait(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1)


class Steps(Streams):
    """Calls step with the states of all running sequences, which join and leave between two calls."""

    def __init__(self, handlers: Any, lost: Callable[[BaseException], Any]) -> None:
        super().__init__(handlers, lost)
        self._changed = threading.Condition()
        self._joining: list[Any] = []
        self._stopped = False
        self._again = False
        self._thread = threading.Thread(target=self._run, name="xebec-steps", daemon=True)
        self._thread.start()

    def start(self, stream: Stream, arguments: tuple[Any, ...]) -> None:
        stream.on_change = self._notify
        with self._changed:
            self._joining.append((stream, arguments))
            self._changed.notify()

    def _notify(self) -> None:
        with self._changed:
            self._again = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as e:
            Threads.end(self._lost, e)

    def _loop(self) -> None:
        running: list[tuple[Stream, Any]] = []
        while True:
            with self._changed:
                self._again = False
            running = [(stream, state) for stream, state in running if not stream.over()]
            ready = [(stream, state) for stream, state in running if not stream.full()]
            with self._changed:
                while not (ready or self._joining or self._stopped or self._again):
                    self._changed.wait()
                if self._stopped:
                    return
            others = len(running)
            running += self._join()  # no variable here holds a state that has ended
            ready += running[others:]
            if ready:
                ended = self._step(ready)
                ready[0][0].ring()  # for all of them
                running = [pair for pair in running if id(pair[0]) not in ended]

    def _join(self) -> list[tuple[Stream, Any]]:
        with self._changed:
            joining, self._joining = self._joining, []
        return [begun for begun in (self._start(*j) for j in joining) if begun]

    def _start(self, stream: Stream, arguments: tuple[Any, ...]) -> Any:
        if stream.closed:
            return None
        try:
            return stream, self._handlers.predict(*arguments)
        except BaseException as e:
            stream.end(e)
            stream.ring()
            return None

    def _step(self, ready: list[tuple[Stream, Any]]) -> set[int]:
        started, ended = _clock(), set()
        try:
            outputs = list(self._handlers.step([state for _, state in ready]))
            if len(outputs) != len(ready):
                raise BadOutput(f"step returned {len(outputs)} outputs for {len(ready)} sequences; expected one for each")
        except BaseException as e:
            for stream, _ in ready:
                stream.end(e)
            return {id(stream) for stream, _ in ready}
        work = (_clock() - started) // len(ready)
        for (stream, _), output in zip(ready, outputs):
            if output is END:
                stream.end(True, work)
            elif isinstance(output, Last):
                stream.put(output.output, work, last=True)
            elif isinstance(output, BaseException):
                stream.end(output, work)
            else:
                if output is not None:
                    stream.put(output, work)
                continue
            ended.add(id(stream))
        return ended

    def wait(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(1)


def _complain(what: str, e: BaseException) -> None:
    import sys

    print(f"xebec: {what} failed: {error_text(e)}", file=sys.stderr, flush=True)


def executor(handlers: Any, lost: Callable[[BaseException], Any]) -> Streams:
    """What runs the model's code."""
    if handlers.step:
        return Steps(handlers, lost)
    from ._check import ASYNC_GENERATOR, flags_of

    return AsyncGenerators(handlers, lost) if flags_of(handlers.predict) & ASYNC_GENERATOR else Generators(handlers, lost)
