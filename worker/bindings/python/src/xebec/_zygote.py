"""The zygote: ``python -m xebec._zygote MODULE…`` imports the modules once and then forks a worker for each request of
the gateway. A worker that would take seconds to import its libraries starts in milliseconds, and shares their memory
until it writes to it.

The gateway starts it with one end of a SOCK_SEQPACKET pair as descriptor 3. Every message is one JSON object. The
zygote sends {"ready": true, "groups": true, "landlock": ABI}, or {"error": why} and exits. Where Landlock cannot be used the ABI
is 0, and "why" says why. Then it handles requests, one at a time:

    {"argv": […], "dir": …, "env": […], "marker": …}   with descriptors: stdout, stderr, go, and up to 3 cgroup files
    {"pid": N} | {"error": why} | {"stale": why}        the answer; a stale zygote exits

A request with "apart": true is for an isolated worker (see below).

argv is [FILE, …] or [-m, MODULE, …]. Texts that may not be UTF-8 (argv, dir, env) are base64, as Go encodes bytes. The
zygote exits at the end of the socket. Nothing is unpickled, and only the gateway can send requests.

**The worker's parent.** The zygote forks twice, and the process between exits at once, so the worker becomes a child of
the subreaper above the zygote. The worker waits for a byte from *go*. The byte means that the subreaper has adopted it:
its limits are set, and its end will be noticed. End of file means that it is not wanted, and it exits. Before it waits, it
enters its control groups of version 1, by a "0" to each cgroup file: for another process to move it takes 10 ms. The
subreaper moves it where that has failed.

**Workers apart from each other.** Workers of one zygote have the same user and the same namespaces. A worker that is forked
with "apart" enters a Landlock domain of its own before it can be adopted. A process in such a domain can trace only processes
in that domain or in one below it, and reading another one's memory, environment, maps or descriptors in /proc counts as
tracing. From ABI 6 on, the same holds for signals and for connections to abstract unix sockets. The zygote's own domain is
above those of its workers. The domain forbids nothing else: its only rule allows everything that it handles.

**What is refused.** A forked process has only the thread that forked, and it shares open files with its parent. So a
zygote does not fork if its imports have left files open (including a GPU) or have started threads. There is one
exception, which needs no list of names: a library that handles forks stops its threads when one happens. OpenBLAS does,
whose pool numpy and scipy start when they are imported. The zygote therefore forks once for a test and counts its
threads afterwards. If it is refused, the gateway starts the workers as processes of their own.

**What a worker sees** is what the script would see in an interpreter of its own: ``__main__``, ``sys.argv``,
``sys.path[0]``, directory, environment, exit codes, tracebacks. There are two unavoidable differences: workers of one
zygote have the same seed of hash(), and a module that is already imported is not searched for in the model's directory.
"""

from __future__ import annotations

import array
import base64
import builtins
import ctypes
import gc
import importlib
import importlib.machinery
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import sys
import threading
import time
import types
import warnings
from typing import Any, NamedTuple, Optional

from ._link import ring_module

CONTROL_FD = 3
MAX_REQUEST_BYTES = 65_536  # the gateway starts a larger request as a process of its own
MAX_TEXT = 4_000  # of a message, in characters
EXIT_NOT_LAUNCHED = 2
EXIT_ORPHANED = 1  # this worker was not adopted, or the process that adopted it is gone
SETTLE_SECONDS = 1.0  # a joined thread is still listed for a moment
MARKER = b"XEBEC_LAUNCH"

_INSTEAD = "Import the module that does so in the model, not in `preload`"

_PR_SET_PDEATHSIG = 1
# System calls that have the same numbers on every architecture that Python runs on with Landlock, and their constants (linux/landlock.h).
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION = 1
_LANDLOCK_PATH_BENEATH = 1
_LANDLOCK_MAKE_BLOCK = 1 << 11
_LANDLOCK_REFER = 1 << 13  # since ABI 2
_LANDLOCK_SCOPES = 1 << 0 | 1 << 1  # abstract unix sockets, signals; since ABI 6
_PR_SET_DUMPABLE = 4
_MAX_GROUPS = 3  # one for each controller: memory, pids, cpu
_CONTROL_BYTES = socket.CMSG_SPACE((3 + _MAX_GROUPS) * 4)


class Request(NamedTuple):
    argv: list[str]
    dir: bytes
    env: dict[bytes, bytes]
    marker: bytes
    apart: bool


def parse(data: bytes) -> Request:
    """Raises ValueError or KeyError for a malformed request."""
    fields = json.loads(data)
    env = dict(base64.b64decode(entry).partition(b"=")[::2] for entry in fields["env"])
    argv = [os.fsdecode(base64.b64decode(word)) for word in fields["argv"]]
    if not argv or argv == ["-m"]:
        raise ValueError("argv names nothing to run")
    return Request(argv, base64.b64decode(fields["dir"]), env, fields["marker"].encode(), fields.get("apart") is True)


def main() -> None:
    sock = _control()
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this process's start directory; a worker puts its model's directory there
    zygote = Zygote(sock)
    try:
        before = descriptors()
        load(sys.argv[1:])
        why = left_open(before) or lasting_threads()
    except Unfit as e:
        why = str(e)
    if why:
        zygote.say(error=why)
        raise SystemExit(1)
    argv = zygote.serve()
    if argv:
        run(argv)


def _control() -> socket.socket:
    try:
        sock = socket.socket(fileno=CONTROL_FD)
    except OSError:
        print("xebec: a zygote is started by the gateway, for models whose xebec.yaml has `preload`", file=sys.stderr)
        raise SystemExit(EXIT_NOT_LAUNCHED) from None
    sock.set_inheritable(False)
    return sock


class Unfit(Exception):
    """This process cannot be a zygote; the text says why."""


def load(modules: list[str]) -> None:
    """Imports the modules that models list, and those that the binding itself imports when it serves."""
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as e:  # includes SystemExit: a module that exits must not end this process silently
            raise Unfit(f"import {name}: {type(e).__name__}: {e}"[:MAX_TEXT]) from e
    ring_module()
    if "numpy" in sys.modules:
        importlib.import_module("xebec._arrays")


def descriptors() -> dict[int, str]:
    """The open descriptors and what they refer to, except that of the listing itself."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass  # the listing's own descriptor, closed by now
    return found


def left_open(before: dict[int, str]) -> Optional[str]:
    """Says which files the imports have left open. Workers would share a file's position, and a GPU's context does not
    survive a fork. Closing them would leave the library with a number that soon refers to another file."""
    new = [target for fd, target in descriptors().items() if before.get(fd) != target]
    if not new:
        return None
    gpu = any(target.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri")) for target in new)
    why = "a GPU that has been opened cannot be used by forked processes" if gpu else "forked processes would share it"
    return f"the imports have left {new[0]} open ({len(new)} in all): {why}. {_INSTEAD}"


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def lasting_threads() -> Optional[str]:
    """Says whether the imports have started threads that a fork does not stop."""
    if tasks() == 1:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns about what this function tests
        pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    end = time.monotonic() + SETTLE_SECONDS
    while tasks() > 1 and time.monotonic() < end:
        time.sleep(0.001)
    left = tasks() - 1
    if not left:
        return None
    names = [t.name for t in threading.enumerate() if t is not threading.current_thread()]
    which = f" ({', '.join(names)})" if names else ""
    return f"the imports have started {left} threads{which}, which forked processes would not have. {_INSTEAD}"


class Ruleset(NamedTuple):
    """What a worker restricts itself by: a descriptor, or None and the reason."""

    abi: int
    fd: Optional[int]
    why: str


def ruleset(libc: ctypes.CDLL) -> Ruleset:
    """Makes the Landlock ruleset of workers. Each process that applies it gets a domain of its own. A ruleset must handle
    something, and any ruleset forbids to rename between directories unless it allows that. So it handles that where it can,
    else the making of block devices, and allows it everywhere."""
    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_LANDLOCK_VERSION))
    if abi <= 0:
        return Ruleset(0, None, f"this kernel has no Landlock, or it is not enabled at boot (lsm=landlock,…): {_error()}")
    handled = _LANDLOCK_MAKE_BLOCK if abi < 2 else _LANDLOCK_REFER
    attributes = struct.pack("=QQQ", handled, 0, _LANDLOCK_SCOPES if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24  # the kernel knows as many fields
    fd = libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    if fd < 0:
        return Ruleset(0, None, f"landlock_create_ruleset: {_error()}")
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        if libc.syscall(_LANDLOCK_ADD_RULE, fd, _LANDLOCK_PATH_BENEATH, struct.pack("=Qi", handled, root), ctypes.c_uint(0)):
            why = f"landlock_add_rule: {_error()}"
            os.close(fd)
            return Ruleset(0, None, why)
    finally:
        os.close(root)
    return Ruleset(abi, fd, "")


def _error() -> str:
    return os.strerror(ctypes.get_errno())


class Zygote:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reaper = os.getppid()
        self._env = dict(os.environb)  # before the imports
        self._libc = ctypes.CDLL(None, use_errno=True)
        # Workers of other models, which run as the same user, can neither trace this process nor read its memory.
        self._libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        self._arguments, self._environment = strings_of_this_process()
        self._places: dict[str, int] = {}
        self._ruleset = Ruleset(0, None, "")

    def say(self, **fields: Any) -> None:
        self._sock.send(json.dumps(fields).encode())

    def serve(self) -> Optional[list[str]]:
        """Reports that it is ready, and forks until the gateway hangs up. In each worker it returns too, with the
        worker's argv."""
        self._places = module_directories()
        gc.collect()
        gc.freeze()  # so that a collection in a worker does not write to, and so copy, objects from before the fork
        self._flush()
        self._ruleset = ruleset(self._libc)
        why = {"why": self._ruleset.why[:MAX_TEXT]} if self._ruleset.why else {}
        self.say(ready=True, groups=True, landlock=self._ruleset.abi, **why)
        while True:
            data, control, flags, _ = self._sock.recvmsg(MAX_REQUEST_BYTES, _CONTROL_BYTES, socket.MSG_CMSG_CLOEXEC)
            fds = array.array("i")
            for level, kind, raw in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
            if not data:
                return None
            try:
                if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or not 3 <= len(fds) <= 3 + _MAX_GROUPS:
                    expected = f"3 to {3 + _MAX_GROUPS}"
                    raise ValueError(f"it has more than {MAX_REQUEST_BYTES} bytes, or {len(fds)} descriptors instead of {expected}")
                request = parse(data)
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                self.say(error=f"invalid request: {e!r}"[:MAX_TEXT])
                return None
            if module_directories() != self._places:
                self.say(stale="packages have been installed or removed since it was started")
                return None
            if self._fork(request, fds):
                return request.argv
            for fd in fds:
                os.close(fd)

    def _flush(self) -> None:
        """Flushes the buffers, whose content every worker would write again."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass  # closed or replaced by an import
        self._libc.fflush(None)

    def _fork(self, request: Request, fds: array.array[int]) -> bool:
        """Returns True in the worker, once it has been adopted. Before that, the worker reports errors through a
        pipe."""
        reader, writer = os.pipe()
        try:
            middle = os.fork()
        except OSError as e:
            os.close(reader)
            os.close(writer)
            self.say(error=f"fork: {e.strerror}")
            return False
        if middle:
            os.close(writer)
            with open(reader, "rb") as pipe:
                answer = pipe.read(MAX_REQUEST_BYTES)  # until end of file: the worker has closed it, or both processes are gone
            os.waitpid(middle, 0)
            self._sock.send(answer or b'{"error": "the forked process ended at once"}')
            return False
        try:
            self._libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after exec: the reaper looks for the marker
            self._rename(request)  # first, because processes with the zygote's marker are killed with the zygote
            if os.fork():
                os._exit(0)
            self._sock.close()
            os.close(reader)
            self._become(request, fds)
            answer = json.dumps({"pid": os.getpid()}).encode()
        except BaseException as e:
            os.write(writer, json.dumps({"error": f"{type(e).__name__}: {e}"[:MAX_TEXT]}).encode())
            os._exit(1)
        os.write(writer, answer)
        os.close(writer)
        self._await_adoption(fds[2])
        reseed()
        return True

    def _rename(self, request: Request) -> None:
        """Overwrites the zygote's marker and command with the worker's, in the memory that the kernel shows as a
        process's initial environment and command line. The gateway recognises stray processes by the marker; people
        read the command."""
        start, size = self._environment
        shown = b"\0" + ctypes.string_at(start, size)
        at = shown.find(b"\0" + MARKER + b"=")
        end = shown.find(b"\0", at + 1)
        entry = MARKER + b"=" + request.marker
        if at < 0 or end - at - 1 != len(entry):
            raise ValueError(f"this process was not started with a {MARKER.decode()} of the length of {request.marker!r}")
        ctypes.memmove(start + at, entry, len(entry))
        start, size = self._arguments
        words = [sys.executable, *request.argv]
        shown = b"\0".join(os.fsencode(word) for word in words)[: size - 1]
        ctypes.memmove(start, shown.ljust(size, b"\0"), size)

    def _become(self, request: Request, fds: array.array[int]) -> None:
        os.setsid()
        for group in fds[3:]:
            try:
                os.write(group, b"0")
            except OSError:
                pass  # the subreaper does it
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        os.chdir(request.dir)
        for name in self._env.keys() - request.env.keys():
            os.environb.pop(name, None)
        for name, value in request.env.items():
            if self._env.get(name) != value:  # otherwise keep what the imports have set
                os.environb[name] = value
        if request.apart and self._ruleset.fd is not None:
            if self._libc.syscall(_LANDLOCK_RESTRICT_SELF, self._ruleset.fd, ctypes.c_uint(0)):
                raise OSError(ctypes.get_errno(), f"landlock_restrict_self: {_error()}")

    def _await_adoption(self, go: int) -> None:
        if not os.read(go, 1):
            os._exit(EXIT_ORPHANED)
        for fd in descriptors():
            if fd > 2:
                os.close(fd)
        # Not earlier: until now the parent was the process between, whose exit would have sent the signal. Check the
        # parent: the reaper may be gone.
        if self._libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0) or os.getppid() != self._reaper:
            os._exit(EXIT_ORPHANED)


def strings_of_this_process() -> tuple[tuple[int, int], tuple[int, int]]:
    """Address and length of the arguments and of the environment that this process was started with."""
    with open("/proc/self/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    arg_start, arg_end, env_start, env_end = map(int, fields[45:49])
    return (arg_start, arg_end - arg_start), (env_start, env_end - env_start)


def module_directories() -> dict[str, int]:
    """When each directory on sys.path was last changed. Installing or removing a package changes its directory."""
    found = {}
    for place in sys.path:
        try:
            found[place] = os.stat(place).st_mtime_ns
        except OSError:
            pass  # not every entry exists
    return found


def reseed() -> None:
    """Reseeds generators that would continue from the zygote's state. Python's random module does so itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def run(argv: list[str]) -> None:
    """Runs ``[FILE, …]`` or ``[-m, MODULE, …]`` as ``python`` would, in this process. The interpreter handles what the
    model raises, but the traceback begins in the model."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [sys.executable, *argv]
    if os.environ.get("PYTHONUNBUFFERED") and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # an interpreter reads the variable only when it starts
    try:
        _run(argv, main)
    except BaseException:
        hook = sys.excepthook  # the model's own hook, if it has set one

        def excepthook(kind: type[BaseException], error: BaseException, trace: Optional[types.TracebackType]) -> None:
            own = frames_of_model(trace)
            hook(kind, error.with_traceback(own), own)

        sys.excepthook = excepthook
        raise


def _run(argv: list[str], main: types.ModuleType) -> None:
    if argv[0] == "-m":
        sys.argv[:] = ["-m", *argv[2:]]
        _put_first(os.getcwd())
        runpy._run_module_as_main(argv[1])  # type: ignore[attr-defined]  # what `python -m` itself calls
        return
    sys.argv[:] = argv
    path = os.path.join(os.getcwd(), argv[0])
    if pkgutil.get_importer(path) is not None:  # a directory or an archive with a __main__.py
        sys.path.insert(0, os.path.abspath(path))
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    _put_first(os.path.dirname(os.path.realpath(path)))
    try:
        with io.open_code(path) as f:
            code = pkgutil.read_code(f)
        if code is None:  # not compiled
            with io.open_code(path) as f:
                source = f.read()
    except OSError as e:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {e.errno}] {e.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    main.__dict__.update(__file__=path, __cached__=None, __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    exec(code or compile(source, path, "exec", dont_inherit=True), main.__dict__)


def frames_of_model(trace: Optional[types.TracebackType]) -> Optional[types.TracebackType]:
    """Skips this module's own frames."""
    own = trace
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == __file__:
            own = trace.tb_next
        trace = trace.tb_next
    return own


def _put_first(place: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, place)


if __name__ == "__main__":
    main()
