"""A worker's life: segments that grow, outputs that wait, signals, hang-ups, and gateways that misbehave."""

import os
import random
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from gateway import PATIENCE_S, Gateway, fence

import xebec
from xebec import _protocol as p
from xebec._tensors import Signature

ECHO = "import xebec\nxebec.serve(lambda batch: batch)\n"


@pytest.fixture
def pipe():
    """An inheritable pipe that holds a worker in predict until the test releases it."""
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_hello(start):
    gw = start(ECHO)
    ring = p.CAN_RING if gw.ring else 0
    assert gw.hello == p.Hello(2, 0, ring | p.CAN_LINES, "token-1", "digits", "7", f"xebec-python/{xebec.__version__}", None)
    gw.stop()


def test_a_worker_with_rings_takes_frames_where_the_gateway_wants_them(start):
    gw = start(ECHO, serve=False)
    gw.greet(mode=0)
    gw.ring = False
    gw.grow()
    assert gw.predict([b"a"])[1] == [b"a"]
    assert gw.b.map[128:448] == bytes(320), "without rings the control page is not touched"
    gw.stop()


def test_many_batches_in_flight_lose_no_wake_up(start):
    """Random depths make both sides sleep and wake at every point of the protocol. A lost wake-up would hang here."""
    gw = start("import xebec\nxebec.serve(lambda batch: batch + 1)\n", "int64[]", "int64[]")
    rng = random.Random(7)
    sent = done = 0
    space = gw.place(bytes(gw.entries * 192))[0]
    out = gw.grant(gw.entries * 192)[0]
    expected = {}
    while done < 3000:
        while len(expected) < rng.choice((1, 1, 2, 8, gw.entries)) and sent < 3000:
            block = gw.block([np.array([sent, 2 * sent, 3 * sent])], 3)
            at = 192 * (sent % gw.entries)
            gw.a.map[space + at : space + at + len(block)] = block
            q = gw.request(p.PREDICT, 3, space + at, len(block), out + at, 192)
            expected[q.batch] = sent
            sent += 1
        r = gw.answer()
        n = expected.pop(r.batch)
        assert r.status == p.OK and gw.outputs(r).tolist() == [n + 1, 2 * n + 1, 3 * n + 1]
        done += 1
    gw.stop()


def test_a_spurious_bell_and_bells_around_frames_mean_nothing(start):
    gw = start(ECHO)
    gw.sock.sendall(b"\1" * 200)
    assert gw.predict([b"a"])[1] == [b"a"]
    gw.sock.sendall(b"\1" + p.frame(p.DRAIN) + b"\1")
    assert gw.wait() == (0, "")


def test_frames_in_pieces(start):
    """Byte by byte: inside a frame, a byte that looks like a bell is not one."""
    gw = start(ECHO, serve=False)
    gw.accept()
    gw.ring = gw.ring_offered
    mode = p.CAN_RING if gw.ring else 0
    for byte in p.frame(p.WELCOME, p.encode_welcome(p.Welcome(1, 0, mode, 1, "digits", "7", gw.signature))):
        gw.sock.sendall(bytes([byte]))
    gw.grow()
    gw.slab_bytes = 1 << 16  # a size that contains the byte 0x01
    gw.new_segments()
    gw.send_segments(piecewise=True)
    assert gw.frame() == (p.READY, p.encode_ready(2))
    assert gw.predict([b"a"])[1] == [b"a"]
    for byte in p.frame(p.DRAIN):
        gw.sock.sendall(bytes([byte]))
    assert gw.wait() == (0, "")


# -- outputs that do not fit --


def test_need_more_grant_and_discard(start):
    source = """
import xebec
def predict(batch):
    return [x * 100 for x in batch], [0.25] * len(batch)
xebec.serve(predict, confidences=True)
"""
    gw = start(source)
    first, second, third = (gw.submit([[x]], 1, None, 64) for x in (b"a", b"b", b"c"))
    needs = [gw.answer() for _ in range(3)]
    assert [r.status for r in needs] == [p.NEED_MORE] * 3
    assert {(r.need, r.out_len, r.flags) for r in needs} == {(200, 0, 0)}

    gw.request(p.DISCARD, batch=second.batch)
    r = gw.answer()
    assert (r.batch, r.kind, r.status, r.queries, r.out_len) == (second.batch, p.PREDICT, p.OK, 1, 0)

    r, got = gw.predict([b"d"])
    assert got[0] == [b"d" * 100], "the worker goes on while others wait"

    gw.request(p.GRANT, 1, 0, 0, *gw.grant(200), batch=third.batch)
    r = gw.answer()
    assert (r.batch, r.kind, r.status, r.out_len, r.flags) == (third.batch, p.PREDICT, p.OK, 200, p.FLAG_CONFIDENCES)
    assert gw.outputs(r) == [[b"c" * 100], (0.25,)]
    assert r.work_nanos == next(n.work_nanos for n in needs if n.batch == third.batch)

    gw.grow(4 << 20)
    gw.request(p.GRANT, 1, 0, 0, *gw.grant(4096), batch=first.batch)
    r = gw.answer()
    assert (r.generation, r.status, gw.outputs(r)) == (2, p.OK, [[b"a" * 100], (0.25,)])
    gw.stop()


def test_kept_outputs_are_the_workers_own(start):
    """The model returns its input view. After NEED_MORE the input block is the gateway's again, and the gateway writes
    there."""
    gw = start(ECHO, "int64[8]", "int64[8]")
    sent = np.arange(16).reshape(2, 8)
    q = gw.submit([sent], 2, None, 64)
    assert gw.answer().status == p.NEED_MORE
    gw.a.map[q.in_off : q.in_off + q.in_len] = b"\xee" * q.in_len
    gw.request(p.GRANT, 2, 0, 0, *gw.grant(192), batch=q.batch)
    assert (gw.outputs(gw.answer()) == sent).all()
    gw.stop()


def test_accuracy_that_does_not_fit(start):
    gw = start("import xebec\nxebec.serve(lambda batch: batch, accuracy=lambda: 0.75)\n")
    q = gw.request(p.ACCURACY, 0, 0, 0, *gw.grant(71))
    r = gw.answer()
    assert (r.kind, r.status, r.need) == (p.ACCURACY, p.NEED_MORE, 72)
    # GRANT has the count of its batch, and ACCURACY has none, so a gateway can only discard.
    gw.request(p.DISCARD, batch=q.batch)
    r = gw.answer()
    assert (r.kind, r.status, r.queries) == (p.ACCURACY, p.OK, 0)
    gw.stop()


# -- generations --


def test_an_old_generation_lives_as_long_as_a_view_of_it(start):
    source = """
import xebec
kept = []
def maps():
    with open("/proc/self/maps") as f:
        return sorted(line.split("memfd:")[1].split()[0] for line in f if "memfd:xebec" in line)
def predict(batch):
    if batch[0, 0] == 1:
        kept.append(batch)
    elif batch[0, 0] == 3:
        kept.clear()
    return [" ".join(maps()) + (" %d" % kept[0].sum() if kept else "")]
xebec.serve(predict)
"""
    gw = start(source, "int64[4]", "bytes[]")
    both = "xebec-a-{0} xebec-b-{0}"
    assert gw.predict(np.array([[1, 2, 3, 4]]))[1] == [f"{both.format(1)} 10".encode()]
    gw.grow(2 << 20)
    assert gw.predict(np.array([[2, 0, 0, 0]]))[1] == [b"xebec-a-1 xebec-a-2 xebec-b-2 10"]
    gw.grow(8 << 20)
    assert gw.predict(np.array([[2, 0, 0, 0]]))[1] == [b"xebec-a-1 xebec-a-3 xebec-b-3 10"]
    assert gw.predict(np.array([[3, 0, 0, 0]]))[1] == [both.format(3).encode()]
    gw.stop()


def test_no_descriptor_is_inherited(start):
    source = """
import os, xebec
def predict(batch):
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if fd > 2 and os.get_inheritable(fd):
                found.append(fd)
        except OSError:
            pass  # the directory's own descriptor
    return [str(found)]
xebec.serve(predict)
"""
    gw = start(source)
    assert gw.predict([b""])[1] == [b"[]"]
    gw.stop()


# -- the end --


def test_drain_answers_what_was_put_before_it(start):
    gw = start(ECHO)
    for _ in range(8):
        gw.submit([[b"x"]], 1)
    gw.send(p.DRAIN)
    assert {gw.answer().status for _ in range(8)} == {p.OK}
    assert gw.wait() == (0, "")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_while_idle(start, signum):
    gw = start(ECHO)
    gw.process.send_signal(signum)
    assert gw.frame()[0] == p.LEAVING
    assert gw.predict([b"still here"])[1] == [b"still here"]
    gw.stop()


def test_sigterm_in_the_middle_of_predict(start, pipe):
    source = f"import os, xebec\nxebec.serve(lambda batch: [os.read({pipe[0]}, 1)])\n"
    gw = start(source, pass_fds=pipe[:1])
    gw.submit([[b""]], 1)
    gw.terminate()
    os.write(pipe[1], b"k")
    kind, payload = gw.frame()
    assert kind == p.LEAVING and p.decode_leaving(payload) == "SIGTERM"
    assert gw.outputs(gw.answer()) == [b"k"]
    gw.stop()


def test_a_second_sigterm_ends_at_once(start, pipe):
    gw = start(f"import os, xebec\nxebec.serve(lambda batch: [os.read({pipe[0]}, 1)])\n", pass_fds=pipe[:1])
    gw.submit([[b""]], 1)
    while gw.process.poll() is None:  # two signals in quick succession count as one
        gw.terminate()
        try:
            gw.process.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
    assert gw.wait()[0] == 128 + signal.SIGTERM


def test_sigterm_before_there_is_anything_to_drain(start):
    gw = start(ECHO, serve=False)
    gw.greet()
    gw.terminate()
    assert gw.wait() == (0, "")


def test_the_gateway_hangs_up(start):
    gw = start(ECHO)
    gw.sock.close()
    assert gw.wait() == (1, "")


def test_the_gateway_hangs_up_during_predict(start, pipe):
    gw = start(f"import os, xebec\nxebec.serve(lambda batch: [os.read({pipe[0]}, 1)])\n", pass_fds=pipe[:1])
    gw.submit([[b""]], 1)
    gw.sock.close()
    os.write(pipe[1], b"k")
    assert gw.wait() == (1, "")


def test_a_forked_child_neither_hides_the_hang_up_nor_shrugs_off_sigterm(start):
    source = """
import os, signal, xebec
def predict(batch):
    child = os.fork()
    if not child:
        signal.pause()
    return [str(child)]
xebec.serve(predict)
"""
    gw = start(source)
    child = int(gw.predict([b""])[1][0])
    pidfd = os.pidfd_open(child)
    try:
        gw.process.kill()
        while not gw.hung_up:
            gw.read()
        signal.pidfd_send_signal(pidfd, 0)  # the child still lives
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        # The child ends: it reads from pipes whose other ends the worker held.
        gw.process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(pidfd)


def test_code_after_serve_and_atexit(start):
    gw = start("import atexit, xebec\natexit.register(print, 'bye')\nxebec.serve(lambda batch: batch)\n")
    gw.send(p.DRAIN)
    out, err = gw.process.communicate(timeout=PATIENCE_S)
    assert (out, err, gw.process.returncode) == (b"bye\n", b"", 0)


def test_what_a_model_prints_is_there_line_by_line(start):
    gw = start("import xebec\nxebec.serve(lambda batch: print('seen', len(batch)) or batch)\n")
    gw.predict([b"a", b"b"])
    assert gw.process.stdout.readline() == b"seen 2\n"
    gw.stop()


# -- gateways that misbehave, and what the worker prints --


def ends(gw, words):
    status, err = gw.wait()
    assert status == 1 and err.startswith("xebec: ") and words in err, err


def test_refused(start):
    gw = start(ECHO, serve=False)
    gw.accept()
    gw.send(p.REFUSED, p.encode_refused(p.Refused(2, "this token was used before")))
    ends(gw, "the gateway refused this worker: this token was used before (code 2, token)")


@pytest.mark.parametrize(
    "kind, payload, words",
    [
        (p.WELCOME, p.encode_welcome(p.Welcome(3, 0, 0, 1, "digits", "7", Signature((), ()))), "this binding speaks 1.0"),
        (p.SEGMENTS, p.encode_segments(p.Segments(1, 16, 1 << 20, 1 << 20)), "frame type 0x04 is not expected here"),
        (p.DRAIN, b"", "frame type 0x08 is not expected here"),
        (p.HELLO, b"", "frame type 0x02 is not expected here"),
        (p.CANCEL, bytes(8), "frame type 0x09 is not expected here"),
        (p.LINES, b"", "frame type 0x0a is not expected here"),
        (0x0B, b"", "unknown frame type 0x0b"),
    ],
)
def test_wrong_first_frames(start, kind, payload, words):
    gw = start(ECHO, serve=False)
    gw.accept()
    gw.send(kind, payload)
    ends(gw, words)


def test_segments_that_are_not_what_was_said(start):
    def short(gw):
        os.close(gw.a.fd)
        gw.a.fd = os.memfd_create("short")
        os.ftruncate(gw.a.fd, 4096)
        gw.send_segments()

    def one_descriptor(gw):
        gw.send_segments([gw.a.fd])

    def swapped(gw):
        gw.send_segments([gw.b.fd, gw.a.fd])

    def wrong_generation(gw):
        gw.generation += 1
        gw.send_segments()

    def too_small(gw):
        gw.size = 4096
        gw.send_segments()

    def entries(gw):
        gw.entries = 24
        gw.send_segments()

    for spoil, words in (
        (short, "segment A has 4096 bytes, SEGMENTS says"),
        (one_descriptor, "SEGMENTS came with 1 descriptors, expected 2"),
        (swapped, "bytes: [Errno 1]"),
        (wrong_generation, "segment A: its generation is 0x1, expected 0x2"),
        (too_small, "segment A of 4096 bytes is too small for its own ring"),
        (entries, "24 entries, expected a power of two from 16 to 4096"),
    ):
        gw = start(ECHO, serve=False)
        gw.greet()
        gw.new_segments()
        spoil(gw)
        ends(gw, words)


def test_a_generation_that_does_not_grow(start):
    gw = start(ECHO)
    gw.generation = 0
    gw.new_segments()
    gw.send_segments()
    ends(gw, "SEGMENTS of generation 1 after 1")


@pytest.mark.parametrize(
    "fields, words",
    [
        (dict(kind=6, queries=1), "a request of the unknown kind 6"),
        (dict(kind=p.PREDICT, queries=0), "a request of kind 1 with 0 queries"),
        (dict(kind=p.ACCURACY, queries=1), "a request of kind 3 with 1 queries"),
        (dict(kind=p.PREDICT, queries=1, in_off=8200, in_len=64), "expected multiples of 64"),
        (dict(kind=p.PREDICT, queries=1, in_off=64, in_len=64), "the input block at 64 with 64 bytes lies outside"),
        (dict(kind=p.PREDICT, queries=1, in_off=8192, in_len=1 << 40), "lies outside the slab of A"),
        (dict(kind=p.PREDICT, queries=1, in_off=8192, in_len=64, out_off=4096, out_cap=1 << 30), "lies outside the slab of B"),
        (dict(kind=p.PREDICT, queries=1, in_off=8192, in_len=63), "a block of 63 bytes is too small for the table"),
        (dict(kind=p.GRANT, queries=1), "GRANT for batch 1, which did not answer NEED_MORE"),
        (dict(kind=p.DISCARD), "DISCARD for batch 1, which did not answer NEED_MORE"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_requests_that_contradict_themselves(start, fields, words):
    gw = start(ECHO, entries=64)
    gw.request(**fields)
    ends(gw, words)


def test_a_request_of_another_generation(start):
    gw = start(ECHO)
    gw.generation = 9
    gw.submit([[b""]], 1)
    ends(gw, "a request of generation 9, but generation 1 is mapped")


def test_a_grant_that_is_too_small_again(start):
    gw = start(ECHO)
    q = gw.submit([[b"x" * 100]], 1, None, 64)
    assert gw.answer().status == p.NEED_MORE
    gw.request(p.GRANT, 1, 0, 0, *gw.grant(64), batch=q.batch)
    ends(gw, "GRANT for batch 1 has 64 bytes, but NEED_MORE was for 180")


def test_reserved_fields_and_cursors_in_the_ring(tmp_path):
    for spoil, words in (
        (lambda gw: gw.a.map.__setitem__(4096 + 14, 1), "reserved fields are not 0"),
        (lambda gw: gw.a.u64.__setitem__(128 // 8, 17), "shows 17 put and 0 taken, with room for 16"),
        (lambda gw: gw.a.u64.__setitem__(128 // 8, 2**64 - 1), "put and 0 taken"),
    ):
        with Gateway(ECHO, tmp_path) as gw:
            spoil(gw)
            if not gw.a.u64[128 // 8]:
                gw.a.u64[128 // 8] = 1
            fence()
            gw.sock.sendall(b"\1")
            ends(gw, words)


# -- started by hand --


@pytest.mark.parametrize("missing", ["XEBEC_SOCKET", "XEBEC_TOKEN"])
def test_without_a_gateway(missing):
    env = dict(os.environ, XEBEC_SOCKET="@x", XEBEC_TOKEN="t", XEBEC_MODEL="m", XEBEC_VERSION="1")
    del env[missing]
    done = subprocess.run([sys.executable, "-c", ECHO], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert missing in done.stderr and "xebec try DIR" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("path", ["@unused-name", "/nonexistent/socket"])
def test_a_gateway_that_is_not_there(path):
    env = dict(os.environ, XEBEC_SOCKET=path, XEBEC_TOKEN="t", XEBEC_MODEL="m", XEBEC_VERSION="1")
    done = subprocess.run([sys.executable, "-c", ECHO], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"xebec: cannot connect to the gateway at XEBEC_SOCKET={path}: ")


def test_serve_wants_functions_and_the_main_thread(monkeypatch):
    with pytest.raises(TypeError, match="predict is int; expected a function"):
        xebec.serve(3)
    with pytest.raises(TypeError, match="accuracy is float; expected a function"):
        xebec.serve(len, accuracy=0.5)
    source = """
import threading, xebec
def run():
    try:
        xebec.serve(len)
    except RuntimeError as e:
        print(e)
t = threading.Thread(target=run)
t.start()
t.join()
"""
    env = dict(os.environ, XEBEC_SOCKET="@x", XEBEC_TOKEN="t", XEBEC_MODEL="m", XEBEC_VERSION="1")
    done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True)
    assert "call it from the main thread" in done.stdout


def test_a_socket_in_the_file_system(tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "gw"))
    listener.listen(1)
    env = dict(os.environ, XEBEC_SOCKET=str(tmp_path / "gw"), XEBEC_TOKEN="t", XEBEC_MODEL="m", XEBEC_VERSION="1")
    worker = subprocess.Popen([sys.executable, "-c", ECHO], env=env)
    listener.settimeout(60)
    listener.accept()[0].close()
    assert worker.wait(60) == 1
    listener.close()
