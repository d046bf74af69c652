"""The zygote alone: what it refuses, what it answers, and that a forked process that is not adopted exits.
containers/process tests forked workers where they are adopted."""

import array
import base64
import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import textwrap

import pytest

from xebec import _zygote

PATIENCE_S = 60
MARKER = "0123456789abcdef-00000000000000000001"

# Runs a program with a descriptor as its number 3.
AS_3 = """
import os, sys
fd = int(sys.argv[1])
os.dup2(fd, 3)
if fd != 3:
    os.close(fd)
os.execv(sys.argv[2], sys.argv[2:])
"""


LANDLOCK = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
READY = {"ready": True, "groups": True, "landlock": LANDLOCK}  # of a kernel with Landlock; else "why" comes with it


def b64(text):
    return base64.b64encode(os.fsencode(text)).decode()


def request(directory, argv=("model.py",), marker=MARKER, **env):
    entries = {**{k: v for k, v in os.environ.items()}, "XEBEC_LAUNCH": marker, **env}
    env = [b64(f"{k}={v}") for k, v in entries.items()]
    return {"argv": [b64(a) for a in argv], "dir": b64(str(directory)), "env": env, "marker": marker}


class Zygote:
    """A zygote and the gateway's end of its socket."""

    def __init__(self, *modules, path=None, marker=MARKER[:-1] + "0"):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(PATIENCE_S)
        env = dict(os.environ, XEBEC_LAUNCH=marker, PYTHONDONTWRITEBYTECODE="1", **({"PYTHONPATH": str(path)} if path else {}))
        command = [sys.executable, "-c", AS_3, str(theirs.fileno()), sys.executable, "-m", "xebec._zygote", *modules]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env, cwd="/", stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        theirs.close()

    def hear(self):
        return json.loads(self.sock.recv(65_536) or "null")

    def ask(self, message, fds=()):
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([data], control)
        return self.hear()

    def wait(self):
        self.sock.close()
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@pytest.fixture
def zygote():
    started = []

    def start(*args, **kwargs):
        z = Zygote(*args, **kwargs)
        started.append(z)
        return z

    yield start
    for z in started:
        z.sock.close()
        z.process.kill()
        z.process.communicate()


@pytest.fixture
def outputs():
    """stdout, stderr, and the two ends of go."""
    fds = [os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_WRONLY), *os.pipe()]
    yield fds
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            pass  # closed by the test


def modules(tmp_path, **sources):
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
    return tmp_path


def test_ready_and_the_end(zygote, tmp_path):
    z = zygote("quiet", path=modules(tmp_path, quiet="print('imported')"))
    assert z.hear() == READY
    assert z.wait() == (0, "imported\n", "")


@pytest.mark.parametrize(
    "source, why",
    [
        ("import not_there", "import bad: ModuleNotFoundError: No module named 'not_there'"),
        ("raise SystemExit(0)", "import bad: SystemExit: 0"),
        ("1 +", "import bad: SyntaxError: "),
        ("raise RuntimeError('x' * 100_000)", "import bad: RuntimeError: xxx"),
        ("f = open('/dev/null')", "the imports have left /dev/null open (1 in all): forked processes would share it"),
        (
            "import threading as t\nt.Thread(target=t.Event().wait, name='mine', daemon=True).start()",
            "the imports have started 1 threads (mine)",
        ),
    ],
)
def test_what_cannot_be_a_zygote(zygote, tmp_path, source, why):
    z = zygote("bad", path=modules(tmp_path, bad=source))
    error = z.hear()["error"]
    assert error.startswith(why) and len(error) <= _zygote.MAX_TEXT
    assert z.hear() is None
    assert z.wait()[0] == 1


def test_threads_that_end_for_a_fork_do_not_matter(zygote, tmp_path):
    """Stops its thread in a fork handler, as a library may."""
    source = """
        import os, threading
        end = threading.Event()
        t = threading.Thread(target=end.wait)
        t.start()
        os.register_at_fork(before=lambda: (end.set(), t.join()))
        """
    assert zygote("pool", path=modules(tmp_path, pool=source)).hear() == READY


def test_gpus_are_named():
    before = _zygote.descriptors()
    assert _zygote.left_open(before) is None
    # There need not be such a device: only the target of the descriptor's link counts.
    real = _zygote.descriptors
    try:
        _zygote.descriptors = lambda: {**real(), 77: "/dev/nvidia0"}
        assert "a GPU that has been opened cannot be used by forked processes" in _zygote.left_open(before)
    finally:
        _zygote.descriptors = real


@pytest.mark.parametrize(
    "message",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"argv": [], "dir": "", "env": [], "marker": ""}',
        json.dumps(request("/", ["-m"])).encode(),
        json.dumps({**request("/"), "argv": ["/not base64"]}).encode(),
        json.dumps({**request("/"), "env": 5}).encode(),
        json.dumps(request("/", XEBEC_LONG="x" * 60_000)).encode(),
    ],
)
def test_broken_requests_end_the_zygote(zygote, outputs, message):
    z = zygote()
    assert z.hear() == READY
    assert z.ask(message, outputs[:3])["error"].startswith("invalid request: ")
    assert z.hear() is None
    assert z.wait()[0] == 0


def test_a_request_without_its_descriptors(zygote):
    z = zygote()
    assert z.hear() == READY
    assert "0 descriptors instead of 3" in z.ask(request("/"))["error"]


def test_a_request_with_too_many_descriptors(zygote, outputs):
    z = zygote()
    assert z.hear() == READY
    assert "instead of 3 to 6" in z.ask(request("/"), outputs[:1] * 7)["error"]


def test_the_child_enters_its_groups(zygote, outputs, tmp_path):
    """It says so to each file before it waits. One that cannot be written is for the gateway to notice."""
    z = zygote()
    assert z.hear() == READY
    groups = [tmp_path / "memory", tmp_path / "pids"]
    files = [os.open(group, os.O_WRONLY | os.O_CREAT) for group in groups]
    closed = os.open(tmp_path, os.O_RDONLY)
    assert z.ask(request("/"), [*outputs[:3], files[0], closed, files[1]])["pid"] > 0
    for fd in (*files, closed):
        os.close(fd)
    assert [group.read_bytes() for group in groups] == [b"0", b"0"]


def test_what_goes_wrong_in_the_child_is_told(zygote, outputs, tmp_path):
    """The zygote goes on."""
    z = zygote()
    assert z.hear() == READY
    gone = tmp_path / "gone"
    assert z.ask(request(gone), outputs[:3]) == {"error": f"FileNotFoundError: [Errno 2] No such file or directory: {os.fsencode(gone)!r}"}
    assert "was not started with a XEBEC_LAUNCH of the length" in z.ask(request("/", marker="short"), outputs[:3])["error"]
    assert z.ask(request("/"), outputs[:3])["pid"] > 0


def domain_program(directory, sibling):
    """A model that says whether it can look into another process and signal it. (root's CAP_PERFMON opens environ in any domain.)"""
    (directory / "model.py").write_text(textwrap.dedent(f"""
        import os
        def can(what):
            try:
                what()
            except OSError:
                return "0"
            return "1"
        os.rename("here", "sub/there")  # between directories
        with open("seen", "w") as f:
            f.write(can(lambda: os.readlink("/proc/{sibling}/cwd")) + can(lambda: os.kill({sibling}, 0)))
        os.rename("seen", "done")
    """))
    (directory / "here").write_text("")
    (directory / "sub").mkdir()


@pytest.mark.parametrize("apart", [True, False])
def test_apart(outputs, tmp_path, apart):
    """A worker that is forked apart cannot look into the process that asks, and may do everything else."""
    domain_program(tmp_path, os.getpid())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:  # the zygote's part, without imports; this process is what would adopt its workers
        try:
            libc = ctypes.CDLL(None)
            libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, as a launch has it
            libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
            ours.close()
            env = dict(os.environ, XEBEC_LAUNCH=MARKER[:-1] + "0")
            theirs.set_inheritable(True)
            os.posix_spawn(sys.executable, [sys.executable, "-c", AS_3, str(theirs.fileno()), sys.executable, "-m", "xebec._zygote"], env)
            theirs.close()
            try:
                while True:
                    os.wait()
            except ChildProcessError:
                os._exit(0)
        finally:
            os._exit(1)
    theirs.close()
    ours.settimeout(PATIENCE_S)
    assert json.loads(ours.recv(65_536)) == READY
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", outputs[:3]))]
    ours.sendmsg([json.dumps({**request(tmp_path), "apart": apart}).encode()], passed)
    assert json.loads(ours.recv(65_536))["pid"] > 0
    os.write(outputs[3], b"g")
    ours.close()
    assert os.waitpid(pid, 0)[1] == 0
    expected = "11" if not apart or LANDLOCK < 1 else "01" if LANDLOCK < 6 else "00"
    assert (tmp_path / "done").read_text() == expected
    assert (tmp_path / "sub" / "there").exists()


def test_no_landlock():
    class Libc:
        def syscall(self, *_):
            return -1

    assert _zygote.ruleset(Libc())[:2] == (0, None)
    assert "no Landlock" in _zygote.ruleset(Libc()).why


def test_nobody_adopts(zygote, outputs, tmp_path):
    """The child waits, with its launch's marker and a session of its own. It exits when the last writer of go is gone,
    without having run anything."""
    (tmp_path / "model.py").write_text("open('ran', 'w')\n")
    z = zygote()
    assert z.hear() == READY
    pid = z.ask(request(tmp_path), outputs[:3])["pid"]
    end = os.pidfd_open(pid)
    try:
        assert os.getsid(pid) == os.getpgid(pid) == pid
        with open(f"/proc/{pid}/environ", "rb") as f:
            assert f"XEBEC_LAUNCH={MARKER}".encode() in f.read().split(b"\0")
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            assert f.read().rstrip(b"\0").split(b"\0")[1:] == [b"model.py"]
        assert z.wait()[0] == 0, "a child that waits does not hold its zygote"
        os.close(outputs[3])
        assert select.select([end], [], [], PATIENCE_S)[0], "the child did not end"
    finally:
        os.close(end)
    assert not (tmp_path / "ran").exists()


def test_adopted_by_another(zygote, outputs, tmp_path):
    """A child whose parent is not its zygote's parent has lost its reaper, and exits whatever go says."""
    (tmp_path / "model.py").write_text("open('ran', 'w')\n")
    z = zygote()
    assert z.hear() == READY
    pid = z.ask(request(tmp_path), outputs[:3])["pid"]
    with open(f"/proc/{pid}/stat") as f:
        assert int(f.read().rpartition(")")[2].split()[1]) != os.getpid(), "this process is no subreaper"
    end = os.pidfd_open(pid)
    try:
        os.write(outputs[3], b"\1")
        assert select.select([end], [], [], PATIENCE_S)[0], "the child did not end"
    finally:
        os.close(end)
    assert not (tmp_path / "ran").exists()


def test_stale(zygote, outputs, tmp_path):
    z = zygote(path=tmp_path)
    assert z.hear() == READY
    (tmp_path / "new.py").write_text("")
    assert z.ask(request(tmp_path), outputs[:3]) == {"stale": "packages have been installed or removed since it was started"}
    assert z.wait()[0] == 0


def test_by_hand():
    done = subprocess.run([sys.executable, "-m", "xebec._zygote"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == _zygote.EXIT_NOT_LAUNCHED
    assert "a zygote is started by the gateway" in done.stderr


def test_parse():
    r = _zygote.parse(json.dumps(request("/models/\udcff", ["-m", "a\udcfe"], ODD="\udcfd=x")).encode())
    assert r.dir == b"/models/\xff" and r.argv == ["-m", "a\udcfe"] and r.env[b"ODD"] == b"\xfd=x" and r.marker == MARKER.encode()


def test_frames_of_the_model():
    def model():
        raise ValueError("x")

    def trace_of(f):
        try:
            f()
        except ValueError as e:
            return e.__traceback__

    own = trace_of(model)
    assert _zygote.frames_of_model(own) is own, "no frame of ours: all of it"
    assert _zygote.frames_of_model(None) is None
