"""Calls of other functions and models of the gateway: section 7 of ``api/spec/worker.md``.

The worker asks for a connection, a *line*, on a socket that came with LINES, so a call never waits for the worker's loop.
A line carries HTTP/1.1, one call at a time; lines are kept for later calls. The blocks are those of batches, with the
codecs of the callee's signature. Nothing here runs in a model that makes no calls.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, Optional

from ._blocks import Block, codecs
from ._protocol import ProtocolError
from ._tensors import BadOutput, Error, Signature, TensorSpec

# The batch that predict evaluates: its number, and how many queries it has.
current: ContextVar[Optional[tuple[int, int]]] = ContextVar("xebec_batch", default=None)

MAX_LINES = 48  # the gateway gives 64, and one that was closed just now may still count
MAX_HEAD_BYTES = 64 * 1024

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_RECEIVE = 256 * 1024


class CallError(Error):
    """A call of another function or model has failed. The code says why, as in the gateway's answers, for example
    "deadline_exceeded", "overloaded", "invalid_input", "not_found", "forbidden" or "cycle". callee is what was called.

    One that predict raises, or returns in a query's place, fails that query alone. The query's caller gets 502, or 400
    if the callee has refused its input.
    """

    def __init__(self, callee: str, code: str, message: str) -> None:
        Exception.__init__(self, f"call of {callee!r}: {message} ({code})")
        self.callee, self.code = callee, code

    @property
    def refuses(self) -> bool:
        return self.code == "invalid_input"


class _Callee(NamedTuple):
    """What is known of a function or model that is called."""

    digest: str
    signature: Signature
    inputs: Block
    outputs: Block
    copies: bool  # its outputs have bytes, which the codecs slice out of bytes


class _Answer:
    """Reads one answer, piece by piece."""

    def __init__(self) -> None:
        self._head = bytearray()
        self.status = 0
        self.closes = False
        self.body = bytearray()
        self._at = self._size = 0

    def feed(self, data: bytes) -> bool:
        """Takes what has come, and reports whether the answer is complete."""
        if not data:
            raise ConnectionError("the gateway has closed the connection")
        if not self.status:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > MAX_HEAD_BYTES:
                    raise ProtocolError("the head of an answer is too long")
                return False
            data = bytes(self._head[end + 4 :])
            self._read_head(bytes(self._head[:end]).decode("latin-1"))
        if self._at + len(data) > self._size:
            raise ProtocolError("an answer is longer than its Content-Length")
        self.body[self._at : self._at + len(data)] = data
        self._at += len(data)
        return self._at == self._size

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        words = first.split(" ", 2)
        size = fields.get("content-length", "")
        if len(words) < 2 or not words[1].isdigit() or not size.isdigit():
            raise ProtocolError(f"an answer begins with {first!r} and has no Content-Length")
        self.status, self._size = int(words[1]), int(size)
        self.closes = fields.get("connection", "").lower() == "close"
        self.body = bytearray(self._size)


class Lines:
    """The lines of this process. Any thread may call its methods."""

    def __init__(self, fd: int) -> None:
        self._ask = socket.socket(fileno=fd)
        self._pid = os.getpid()
        self._asking = threading.Lock()
        self._change = threading.Condition()
        self._idle: list[socket.socket] = []
        self._open = 0
        self.callees: dict[str, _Callee] = {}

    def take(self, wait: bool) -> Optional[socket.socket]:
        """A line that nothing else uses. If all are in use it waits for one, or returns None."""
        if os.getpid() != self._pid:
            raise RuntimeError("xebec.call: the gateway does not know processes that a model starts: call from the model's own")
        with self._change:
            while not self._idle and self._open >= MAX_LINES:
                if not wait:
                    return None
                self._change.wait()
            if self._idle:
                return self._idle.pop()
            self._open += 1
        try:
            return self._new()
        except BaseException:
            self._gone()
            raise

    def _new(self) -> socket.socket:
        with self._asking:
            self._ask.sendall(b"\1")
            answer, fds, _, _ = socket.recv_fds(self._ask, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if answer != b"\1" or len(fds) != 1:
            for fd in fds:
                os.close(fd)
            raise ConnectionError("the gateway gives no connection: it is stopping, or has no descriptors left")
        return socket.socket(fileno=fds[0])

    def give(self, line: socket.socket, usable: bool) -> None:
        """The line is not used any more."""
        if not usable:
            line.close()
            self._gone()
            return
        with self._change:
            self._idle.append(line)
            self._change.notify()

    def _gone(self) -> None:
        with self._change:
            self._open -= 1
            self._change.notify()


serving = False  # whether the worker runs, so that predict may be under way
_lines: Optional[Lines] = None


def open_lines(fd: int) -> None:
    """LINES has come."""
    global _lines
    _lines = Lines(fd)


def _there(callee: str) -> Lines:
    if not serving:
        why = "calls are possible only in predict, while it evaluates a query of the gateway: not when the module is loaded"
        raise CallError(callee, "forbidden", why)
    if _lines is None:
        why = f"this model calls nothing: add calls: [{callee}] to its manifest, and let the gateway start it"
        raise CallError(callee, "forbidden", why)
    if not _NAME.fullmatch(callee):
        raise CallError(callee, "not_found", "this is no name of a function or model")
    return _lines


def _send(lines: Lines, request: list[Any]) -> _Answer:
    line = lines.take(True)
    assert line is not None
    usable = False
    try:
        line.setblocking(True)
        answer = _Answer()
        for part in request:
            line.sendall(part)
        while not answer.feed(line.recv(_RECEIVE)):
            pass
        usable = not answer.closes
        return answer
    finally:
        lines.give(line, usable)


async def _asend(lines: Lines, request: list[Any]) -> _Answer:
    import asyncio

    loop = asyncio.get_running_loop()
    line = lines.take(False) or await _wait(loop, lines)
    usable = False
    try:
        line.setblocking(False)
        answer = _Answer()
        for part in request:
            await loop.sock_sendall(line, part)
        while not answer.feed(await loop.sock_recv(line, _RECEIVE)):
            pass
        usable = not answer.closes
        return answer
    finally:
        lines.give(line, usable)  # one that was left in the middle is closed, which cancels the call


async def _wait(loop: Any, lines: Lines) -> socket.socket:
    """Waits on a thread for a line. If this task is cancelled meanwhile, the line goes back."""
    waiting = loop.run_in_executor(None, lines.take, True)

    def back(taken: Any) -> None:
        if not taken.cancelled() and not taken.exception():
            lines.give(taken.result(), True)

    try:
        import asyncio

        line: socket.socket = await asyncio.shield(waiting)
        return line
    except BaseException:
        waiting.add_done_callback(back)
        raise


def _ask_signature(callee: str) -> list[Any]:
    return [f"GET /call/{callee} HTTP/1.1\r\nHost: gateway\r\n\r\n".encode()]


def _learn(lines: Lines, callee: str, answer: _Answer) -> _Callee:
    """Reads a signature."""
    if answer.status != 200:
        _raise(callee, answer)
    said = json.loads(bytes(answer.body))
    signature = Signature(*(
        tuple(TensorSpec(t["name"], t["dtype"], tuple(t["shape"])) for t in said[kind]) for kind in ("inputs", "outputs")
    ))  # fmt: skip
    known = lines.callees[callee] = _Callee(
        said["digest"],
        signature,
        Block(codecs(signature.inputs, "input")),
        Block(codecs(signature.outputs, "output")),
        any(spec.dtype in ("bytes", "string") for spec in signature.outputs),
    )
    return known


class _Options(NamedTuple):
    query: Optional[int]
    context: Any
    timeout: Optional[float]
    parameters: Any


def _batch_of_one(value: Any) -> Any:
    return value[None] if getattr(value, "ndim", 0) and hasattr(value, "dtype") else [value]  # a view, where there is one


def _render(callee: str, known: _Callee, x: Any, many: bool, options: _Options) -> list[Any]:
    """The request, as head and body."""
    names = [spec.name for spec in known.signature.inputs]
    if len(names) == 1 and not (isinstance(x, dict) and x.keys() == set(names)):
        columns = [x]
    elif isinstance(x, dict) and x.keys() == set(names):
        columns = [x[name] for name in names]
    else:
        raise CallError(callee, "invalid_argument", f"it takes a dict with the keys {names}")
    if not many:
        columns = [_batch_of_one(value) for value in columns]
    n = len(columns[0])
    if not n:
        raise CallError(callee, "invalid_argument", "there are no inputs")
    try:
        laid_out = known.inputs.prepare(columns, n)
        body = bytearray(laid_out[0])
        known.inputs.write(body, 0, laid_out, n)
    except BadOutput as e:
        raise CallError(callee, "invalid_argument", str(e).replace("predict returned", "got")) from None
    head = [
        f"POST /call/{callee} HTTP/1.1",
        "Host: gateway",
        "Content-Type: application/octet-stream",
        f"Content-Length: {len(body)}",
        f"Xebec-Signature: {known.digest}",
        f"Xebec-Queries: {n}",
    ]
    batch = current.get()
    if batch:
        query = 0 if batch[1] == 1 else options.query
        head.append(f"Xebec-For: {batch[0]}" if query is None else f"Xebec-For: {batch[0]}.{query}")
    if options.timeout is not None:
        head.append(f"Xebec-Slo-Ms: {max(options.timeout * 1000, 0.001):.3f}")
    if options.parameters is not None:
        head.append(f"Xebec-Parameters: {json.dumps(options.parameters)}")
    raw = b""
    if options.context is not None:
        raw = options.context.encode() if isinstance(options.context, str) else bytes(options.context)
        if b"\r" in raw or b"\n" in raw or b"\0" in raw:
            raise CallError(callee, "invalid_argument", "a context has no line breaks")
        raw = b"Xebec-Context: " + raw + b"\r\n"
    start = "\r\n".join(head).encode() + b"\r\n" + raw + b"\r\n"
    return [start + body] if len(body) < _RECEIVE else [start, body]


def _stale(lines: Lines, callee: str, answer: _Answer) -> bool:
    """Whether the callee has another signature now."""
    if answer.status != 409:
        return False
    lines.callees.pop(callee, None)
    return True


def _read(known: _Callee, callee: str, answer: _Answer, n: int, many: bool) -> Any:
    if answer.status != 200:
        _raise(callee, answer)
    body = bytes(answer.body) if known.copies else answer.body
    values = known.outputs.read(body, 0, len(body), n)
    if not many:
        values = [value[0] for value in values]
    if len(values) == 1:
        return values[0]
    return dict(zip((spec.name for spec in known.signature.outputs), values))


def _raise(callee: str, answer: _Answer) -> NoReturn:
    try:
        said = json.loads(bytes(answer.body))
        code, message = said["code"], said["error"]
    except (ValueError, KeyError, TypeError):
        code, message = "internal", f"the gateway has answered {answer.status}"
    raise CallError(callee, code, message)


def _count(x: Any, many: bool) -> int:
    if not many:
        return 1
    return len(next(iter(x.values())) if isinstance(x, dict) else x)


def _lost(callee: str, e: OSError) -> NoReturn:
    raise CallError(callee, "unavailable", str(e) or type(e).__name__) from e


def _call(callee: str, x: Any, many: bool, options: _Options) -> Any:
    lines = _there(callee)
    try:
        for again in (True, False):
            known = lines.callees.get(callee) or _learn(lines, callee, _send(lines, _ask_signature(callee)))
            answer = _send(lines, _render(callee, known, x, many, options))
            if not (again and _stale(lines, callee, answer)):
                return _read(known, callee, answer, _count(x, many), many)
    except OSError as e:
        _lost(callee, e)


async def _acall(callee: str, x: Any, many: bool, options: _Options) -> Any:
    lines = _there(callee)
    try:
        for again in (True, False):
            known = lines.callees.get(callee) or _learn(lines, callee, await _asend(lines, _ask_signature(callee)))
            answer = await _asend(lines, _render(callee, known, x, many, options))
            if not (again and _stale(lines, callee, answer)):
                return _read(known, callee, answer, _count(x, many), many)
    except OSError as e:
        _lost(callee, e)


class _Calling:
    """``xebec.call``, and ``xebec.acall``, whose results are awaited."""

    def __init__(self, run: Callable[[str, Any, bool, _Options], Any]) -> None:
        self._run = run

    def __call__(
        self,
        callee: str,
        x: Any,
        *,
        query: Optional[int] = None,
        context: Any = None,
        timeout: Optional[float] = None,
        parameters: Any = None,
    ) -> Any:
        """Calls another function of the gateway, or a model, with one input, and returns its output: an array, a number,
        ``str`` or ``bytes``; for several outputs a dict. Several inputs are a dict.

        The callee must be named in ``calls`` of this model's manifest. The call belongs to the query that predict
        evaluates: it has its deadline, request id, trace and context. In a batch of several queries it belongs to all of
        them, unless query says to which (its index in the batch). timeout, in seconds, ends the call sooner.

        ``await xebec.acall(…)`` is for ``async def predict``: other calls and batches go on meanwhile.

        Raises :class:`xebec.CallError`.
        """
        return self._run(callee, x, False, _Options(query, context, timeout, parameters))

    def many(
        self,
        callee: str,
        xs: Any,
        *,
        query: Optional[int] = None,
        context: Any = None,
        timeout: Optional[float] = None,
        parameters: Any = None,
    ) -> Any:
        """As call, with n inputs at once: an array or a list of them, or a dict of such. Returns n outputs in the same
        form. If one input has no output, the whole call fails."""
        return self._run(callee, xs, True, _Options(query, context, timeout, parameters))


call, acall = _Calling(_call), _Calling(_acall)
