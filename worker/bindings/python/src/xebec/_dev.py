"""The host of ``xebec dev`` and ``xebec try``: ``python -m xebec._dev DIR SCRIPT MODULE…`` imports the modules, and those that the
script imports from outside its directory, and then forks the script for each request. A model is so started again in milliseconds when
its author has changed it. SCRIPT is empty if the model is a module.

Unlike a zygote (see ``_zygote``), it shares stdin, stdout and stderr with the person who started it, and its workers are its children,
one at a time. Descriptor 3 is one end of a stream socket. Messages are lines of JSON. The host says

    {"slow": why}            it has imported nothing: forked processes could not use what the imports have left
    {"ready": true}          then it takes requests
    {"pid": N}               a worker runs
    {"exit": CODE, "signal": N}  it has ended; CODE is -1 if a signal ended it, N 0 if none did
    {"stale": true}          other libraries are needed now, or installed: the host ends
    {"error": why}           the request cannot be met

and is asked

    {"argv": […], "dir": …, "env": {…}}   to fork a worker
    {"kill": N}                           to send it a signal

An exception of the model is shown on stderr when it happens, in colour on a terminal.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import json
import os
import re
import selectors
import signal
import socket
import sys
import sysconfig
import traceback
from types import TracebackType
from typing import Any, Optional

from . import _model, _zygote
from ._tensors import BadOutput

CONTROL_FD = 3
_BARE = "--bare"  # in the place of the modules: import none

_PLACE = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+)(?P<rest>.*)$', re.MULTILINE)


def main() -> None:
    sock = socket.socket(fileno=CONTROL_FD)
    directory, script, modules = sys.argv[1], sys.argv[2], sys.argv[3:]
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the directory that this process was started in
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is for the program above and the worker
    host = Host(sock, directory, script, modules)
    if modules != [_BARE]:
        host.load()
    argv = host.serve()
    if argv:
        sys.excepthook = show_uncaught
        sys.breakpointhook = stop
        _model.watcher = show
        _zygote.run(argv)


def stop(*args: Any, **kwargs: Any) -> Any:
    """breakpoint(). The debugger does not take Ctrl-C over when its user goes on, as it would: Ctrl-C ends the program above."""
    if os.environ.get("PYTHONBREAKPOINT"):
        return sys.__breakpointhook__(*args, **kwargs)
    import pdb

    return pdb.Pdb(nosigint=True).set_trace(sys._getframe(1))


def imports_of(directory: str, script: str) -> list[str]:
    """The modules that a script imports at its top level and that are not its neighbours."""
    if not script:
        return []
    path = os.path.join(directory, script)
    try:
        with open(path, "rb") as f:
            tree = ast.parse(f.read(), path)
    except (OSError, SyntaxError, ValueError):
        return []  # the worker says what is wrong with it
    names = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return [name for name in dict.fromkeys(names) if not _is_neighbour(os.path.dirname(path), name)]


def _is_neighbour(place: str, module: str) -> bool:
    first = module.partition(".")[0]
    return any(os.path.exists(os.path.join(place, first + end)) for end in ("", ".py"))


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False


class Host:
    def __init__(self, sock: socket.socket, directory: str, script: str, modules: list[str]) -> None:
        self._sock, self._lines = sock, b""
        self._directory, self._script, self._modules = directory, script, modules
        self._imported: list[str] = []
        self._pid = 0
        self._env = dict(os.environ)
        self._places: dict[str, int] = {}

    def say(self, **fields: Any) -> None:
        self._sock.sendall(json.dumps(fields).encode() + b"\n")

    def load(self) -> None:
        """Imports the modules. If forked processes could not use them, this process starts itself again without."""
        before = _zygote.descriptors()
        try:
            self._imported = imports_of(self._directory, self._script)
            _zygote.load([*self._modules, *filter(_found, self._imported)])
            why = _zygote.left_open(before) or _zygote.lasting_threads()
        except _zygote.Unfit as e:
            why = str(e)
        if why:
            self.say(slow=why)
            os.set_inheritable(self._sock.fileno(), True)
            os.execv(sys.executable, [sys.executable, "-u", "-m", "xebec._dev", self._directory, self._script, _BARE])

    def serve(self) -> Optional[list[str]]:
        """Forks until the program above hangs up. In each worker it returns too, with the worker's argv."""
        self._places = _zygote.module_directories()
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        selector.register(self._sock, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        self.say(ready=True)
        while True:
            for key, _ in selector.select():
                if key.fd == reader:
                    os.read(reader, 4096)
                    self._reap()
                    continue
                data = self._sock.recv(1 << 16)
                if not data:
                    self._kill(signal.SIGKILL)
                    return None
                *lines, self._lines = (self._lines + data).split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    if "kill" in request:
                        self._kill(request["kill"])
                    elif self._is_stale():
                        self.say(stale=True)
                        return None
                    elif self._fork(request):
                        selector.close()
                        os.close(reader)
                        os.close(writer)
                        return request["argv"]  # type: ignore[no-any-return]

    def _is_stale(self) -> bool:
        if self._modules == [_BARE]:
            return False
        new = [name for name in imports_of(self._directory, self._script) if name not in self._imported]
        return bool(new) or _zygote.module_directories() != self._places

    def _kill(self, number: int) -> None:
        if self._pid:
            os.kill(self._pid, number)

    def _reap(self) -> None:
        if not self._pid:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._pid = 0
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            self.say(exit=-1 if number else os.WEXITSTATUS(status), signal=number)

    def _fork(self, request: dict[str, Any]) -> bool:
        """Returns True in the worker."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._pid = os.fork()
        if self._pid:
            self.say(pid=self._pid)
            return False
        host = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._sock.close()
        libc = ctypes.CDLL(None)
        libc.prctl(_zygote._PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != host:
            os._exit(1)
        os.chdir(request["dir"])
        env = request["env"]
        for name in self._env.keys() - env.keys():
            os.environ.pop(name, None)
        for name, value in env.items():
            if self._env.get(name) != value:  # otherwise keep what the imports have set
                os.environ[name] = value
        _zygote.reseed()
        return True


def show(error: BaseException) -> None:
    """Shows an exception of the model, or why its outputs do not fit."""
    if isinstance(error, BadOutput):
        _print(f"xebec.BadOutput: {error}\n")
    else:
        show_uncaught(type(error), error, error.__traceback__)


def show_uncaught(kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    """Shows an exception without the frames of this package above the model's."""
    if issubclass(kind, KeyboardInterrupt):
        return
    _print("".join(traceback.format_exception(kind, error, below_this_package(trace))))


def _print(text: str) -> None:
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        text = coloured(text)
    print(text, end="", file=sys.stderr, flush=True)


def below_this_package(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    here = os.path.dirname(os.path.abspath(__file__))
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == here and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def coloured(text: str) -> str:
    """A traceback for a terminal: the model's own places stand out from those of libraries, and what went wrong from both."""
    libraries = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})

    def place(found: re.Match[str]) -> str:
        shade = "2" if found["file"].startswith((*libraries, "<")) else "1;36"
        return f'  File "\x1b[{shade}m{found["file"]}\x1b[0m", line \x1b[{shade}m{found["line"]}\x1b[0m{found["rest"]}'

    def shade(line: str) -> str:
        return line if not line or line[0] == " " or line.startswith("Traceback ") else f"\x1b[1;31m{line}\x1b[0m"

    return "\n".join(map(shade, _PLACE.sub(place, text).split("\n")))


if __name__ == "__main__":
    main()
