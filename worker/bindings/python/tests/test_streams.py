"""Models that answer in streams, and what a query comes with: parameters and calls."""

import os
import select
import struct

import pytest
from gateway import HEAD, SLEEP, Gateway

import xebec
from xebec import _protocol as p
from xebec import _streams
from xebec._streams import AHEAD

LINKS = pytest.mark.parametrize("pure", [False, True], ids=["ring", "frames"])

COUNT = """
import xebec

def predict(batch):
    for i in range(int(batch[0])):
        yield b"%d" % i

xebec.serve(predict)
"""


def grant(gw, batch, size=4096):
    gw.request(p.GRANT, 1, 0, 0, *gw.grant(size), batch=batch)


def collect(gw, batch):
    """The outputs of a stream that has been asked for, each message apart, and its last response."""
    messages = []
    while True:
        r = gw.answer()
        assert r.batch == batch
        if r.status in (p.MORE, p.OK) and r.queries and not r.flags & p.FLAG_STATUSES:
            messages.append(gw.outputs(r))
            assert len(messages[-1]) == r.queries
        if r.status != p.MORE:
            return messages, r
        grant(gw, batch)


def begin(gw, text, **more):
    return gw.submit([[text]], 1, **more).batch


def joined(messages):
    return [output for message in messages for output in message]


@LINKS
def test_order(tmp_path, pure):
    with Gateway(COUNT, tmp_path, pure=pure) as gw:
        assert gw.hello.capabilities & p.CAN_STREAMS and gw.hello.concurrency == 16
        for n in (1, 2, 100):
            messages, last = collect(gw, begin(gw, b"%d" % n))
            assert joined(messages) == [b"%d" % i for i in range(n)]
            assert len(messages[0]) == 1 and last.status == p.OK
            assert max(map(len, messages)) <= AHEAD
        gw.stop()


def test_an_empty_stream(tmp_path):
    with Gateway(COUNT, tmp_path) as gw:
        messages, last = collect(gw, begin(gw, b"0"))
        assert (messages, last.status, last.queries) == ([], p.OK, 0)
        gw.stop()


def test_the_model_runs_ahead_within_a_bound(tmp_path):
    """Between two messages at most AHEAD outputs gather, however long the reader takes."""
    source = COUNT.replace('yield b"%d" % i', 'os.write(FD, b"."); yield b"%d" % i').replace("import xebec", "import os\nimport xebec")
    r, w = os.pipe()
    with Gateway(source.replace("FD", str(w)), tmp_path, pass_fds=[w]) as gw:
        batch = begin(gw, b"1000")
        assert gw.answer().status == p.MORE
        made = 0
        while made < 1 + AHEAD:
            made += len(os.read(r, 100))
        grant(gw, batch)
        sent = gw.answer().queries
        assert AHEAD - 1 <= sent <= AHEAD  # the last one may still be on its way
        while made < 1 + sent + AHEAD:
            made += len(os.read(r, 100))
        os.set_blocking(r, False)
        with pytest.raises(BlockingIOError):
            os.read(r, 1)
        assert made == 1 + sent + AHEAD
        gw.request(p.DISCARD, batch=batch)
        assert gw.answer().status == p.OK
        gw.stop()
    os.close(r)
    os.close(w)


CLOSED = """
import asyncio, os, xebec

def predict(batch):
    try:
        yield b"first"
        os.read({r}, 1)
        yield b"second"
    finally:
        os.write({w}, b"closed")

async def predict_async(batch):
    try:
        yield b"first"
        os.write({w}, b"!")
        await asyncio.sleep(1000)
        yield b"second"
    finally:
        os.write({w}, b"closed")

xebec.serve({predict})
"""


@pytest.fixture
def pipes():
    there, back = os.pipe(), os.pipe()
    yield there, back
    for fd in (*there, *back):
        os.close(fd)


@LINKS
@pytest.mark.parametrize("kind", ["predict", "predict_async"])
def test_discard_closes_the_generator(tmp_path, pipes, pure, kind):
    (r, w), (back_r, back_w) = pipes
    source = CLOSED.format(r=r, w=back_w, predict=kind)
    with Gateway(source, tmp_path, pure=pure, pass_fds=[r, back_w]) as gw:
        batch = begin(gw, b"")
        assert gw.answer().status == p.MORE
        gw.request(p.DISCARD, batch=batch)
        last = gw.answer()
        assert (last.status, last.queries, last.out_len) == (p.OK, 0, 0)
        os.write(w, b"!")
        seen = os.read(back_r, 100)
        while b"closed" not in seen:
            seen += os.read(back_r, 100)
        gw.stop()


@LINKS
@pytest.mark.parametrize("kind", ["predict", "predict_async"])
def test_cancel_in_the_workers_turn(tmp_path, pipes, pure, kind):
    (r, w), (back_r, back_w) = pipes
    source = CLOSED.format(r=r, w=back_w, predict=kind)
    with Gateway(source, tmp_path, pure=pure, pass_fds=[r, back_w]) as gw:
        batch = begin(gw, b"")
        assert gw.answer().status == p.MORE
        if kind == "predict_async":
            assert os.read(back_r, 1) == b"!"
        grant(gw, batch)
        gw.send(p.CANCEL, p.encode_cancel(batch))
        last = gw.answer()
        assert (last.status, last.queries) == (p.OK, 0)
        gw.send(p.CANCEL, p.encode_cancel(batch))  # of a batch that is not there
        gw.send(p.CANCEL, p.encode_cancel(12345))
        os.write(w, b"!")
        assert os.read(back_r, 100) == b"closed"
        gw.stop()


FAILS = """
import xebec

def predict(batch):
    how = batch[0]
    if how == b"refuse":
        raise xebec.Error("not a number")
    if how == b"fail":
        raise ValueError("at once")
    yield b"first"
    if how == b"refuse later":
        raise xebec.Error("no more")
    if how == b"fail later":
        raise ValueError("later")
    if how == b"bad":
        yield 5
    if how == b"exit":
        raise SystemExit(3)
    if how == b"close fails":
        try:
            while True:
                yield b"second"
        finally:
            raise ValueError("while closing")

xebec.serve(predict)
"""


@LINKS
def test_failures_end_their_stream(tmp_path, pure):
    with Gateway(FAILS, tmp_path, pure=pure) as gw:
        for how, outputs, status, says in (
            (b"refuse", 0, p.OK, "not a number"),
            (b"fail", 0, p.MODEL_ERROR, "at once"),
            (b"refuse later", 1, p.OK, "no more"),
            (b"fail later", 1, p.MODEL_ERROR, "later"),
            (b"bad", 1, p.BAD_OUTPUT, "expected bytes or str"),
            (b"exit", 1, p.MODEL_ERROR, "SystemExit"),
            (b"", 1, p.OK, None),
        ):
            messages, last = collect(gw, begin(gw, how))
            assert (len(messages), last.status) == (outputs, status), how
            if last.flags & p.FLAG_STATUSES:
                _, codes, texts = gw.outputs(last)
                assert (list(codes), texts) == ([1], [says])
            elif says:
                assert says in gw.outputs(last)
        gw.stop()


@LINKS
def test_a_string_that_is_not_utf8(tmp_path, pure):
    """The gateway would have to end the worker for a stream that it cannot read."""
    with Gateway(COUNT.replace('b"%d" % i', 'b"\\xff" if i == 2 else b"%d" % i'), tmp_path, "bytes[]", "string[]", pure=pure) as gw:
        messages, last = collect(gw, begin(gw, b"5"))
        assert (joined(messages), last.status) == (["0", "1"], p.BAD_OUTPUT)
        assert "output 'output': item 0 is not valid UTF-8" in gw.outputs(last)
        assert joined(collect(gw, begin(gw, b"2"))[0]) == ["0", "1"]
        gw.stop()


def test_a_close_that_fails(tmp_path):
    with Gateway(FAILS, tmp_path) as gw:
        batch = begin(gw, b"close fails")
        assert gw.answer().status == p.MORE
        grant(gw, batch)
        assert gw.answer().status == p.MORE
        gw.request(p.DISCARD, batch=batch)
        assert gw.answer().status == p.OK
        assert joined(collect(gw, begin(gw, b""))[0]) == [b"first"]
        gw.send(p.DRAIN)
        code, err = gw.wait()
        assert code == 0 and "while closing" in err


@LINKS
def test_need_more_in_a_stream(tmp_path, pure):
    source = COUNT.replace('b"%d" % i', 'b"x" * (3000 * (i + 1))')
    with Gateway(source, tmp_path, pure=pure) as gw:
        batch = begin(gw, b"4")
        got = []
        while True:
            r = gw.answer()
            if r.status == p.NEED_MORE:
                grant(gw, batch, r.need)
                continue
            got += gw.outputs(r) or []
            if r.status == p.OK:
                break
            grant(gw, batch)
        assert [len(x) for x in got] == [3000, 6000, 9000, 12000]
        gw.stop()


def test_arrays_and_confidences(tmp_path):
    source = """
import numpy as np, xebec

def predict(batch):
    row = batch[0]
    yield row, 0.5
    row += 1                    # its own copy, also after the first output
    yield row, None
    yield row[None], [1.0]

xebec.serve(predict, confidences=True)
"""
    with Gateway(source, tmp_path, "float32[2]", "float32[2]") as gw:
        batch = gw.submit([[[1, 2]]], 1).batch
        rows, sure = [], []
        while True:
            r = gw.answer()
            if r.queries:
                values = gw.outputs(r)
                confident = bool(r.flags & p.FLAG_CONFIDENCES)
                rows += (values[0] if confident else values).tolist()
                sure += list(values[1]) if confident else [None] * r.queries
            if r.status == p.OK:
                break
            grant(gw, batch)
        assert rows == [[1, 2], [2, 3], [2, 3]]
        assert sure == [0.5, None, 1.0]
        gw.stop()


STEPS = """
import xebec

class State:
    def __init__(self, text):
        self.left = int(text)
        self.text = text

def start(batch):
    if batch[0] == b"refuse":
        raise xebec.Error("no number")
    return State(batch[0])

def step(states):
    out = []
    for s in states:
        s.left -= 1
        if s.text == b"7":
            out.append(xebec.Error("not seven"))
        elif s.text == b"8":
            out.append(xebec.END if s.left == 0 else None if s.left % 2 else b"%d of %d" % (s.left, len(states)))
        else:
            out.append(xebec.Last(b"last") if s.left == 0 else b"%d" % s.left)
    return out

xebec.serve(start, step=step)
"""


@LINKS
def test_steps(tmp_path, pure):
    with Gateway(STEPS, tmp_path, pure=pure, entries=64) as gw:
        assert gw.hello.concurrency == 62
        messages, last = collect(gw, begin(gw, b"3"))
        assert joined(messages) == [b"2", b"1", b"last"] and last.queries >= 1  # the last output comes with the end
        assert joined(collect(gw, begin(gw, b"8"))[0]) == [b"6 of 1", b"4 of 1", b"2 of 1"]
        for text, says in ((b"7", "not seven"), (b"refuse", "no number")):
            _, last = collect(gw, begin(gw, text))
            assert gw.outputs(last)[2] == [says]
        left = {begin(gw, b"5"): [] for _ in range(20)}  # all at once
        while left:
            r = gw.answer()
            left[r.batch] += gw.outputs(r) or []
            if r.status == p.MORE:
                grant(gw, r.batch)
            else:
                assert left.pop(r.batch) == [b"4", b"3", b"2", b"1", b"last"]
        gw.stop()


def test_a_step_rings_once(tmp_path):
    read, write = os.pipe()
    source = f"""
import os, xebec

def step(states):
    if len(states) < 10:
        return [None for _ in states]
    os.read({read}, 1)
    return [xebec.Last(state) for state in states]

xebec.serve(lambda batch: batch[0], step=step)
"""
    with Gateway(source, tmp_path, pass_fds=[read]) as gw:
        texts = [b"%d" % i for i in range(10)]
        for text in texts:
            begin(gw, text)
        while gw.put != gw.b.u64[HEAD] or not gw.b.u32[SLEEP] & 1:  # until the worker's loop sleeps
            os.sched_yield()
        gw.a.u32[SLEEP] += 1
        os.write(write, b"x")
        gw.read()
        gw.a.u32[SLEEP] += 1
        gw.take()
        assert sorted(gw.outputs(r)[0] for r in gw.answers) == texts
        gw.stop()
    os.close(read)
    os.close(write)


def test_a_step_that_fails(tmp_path):
    with Gateway(STEPS.replace("s.left -= 1", 's.left -= 1 if s.text != b"9" else ValueError("nine")'), tmp_path) as gw:
        _, last = collect(gw, begin(gw, b"9"))
        assert last.status == p.MODEL_ERROR
        assert joined(collect(gw, begin(gw, b"2"))[0]) == [b"1", b"last"]
        gw.stop()


def test_a_slow_reader_pauses_its_sequence_only(tmp_path):
    with Gateway(STEPS, tmp_path) as gw:
        slow = begin(gw, b"1000")
        assert gw.answer().status == p.MORE
        assert len(joined(collect(gw, begin(gw, b"50"))[0])) == 50
        gw.request(p.DISCARD, batch=slow)
        assert gw.answer().status == p.OK
        gw.stop()


def test_a_sequence_that_is_not_wanted_frees_its_state(tmp_path, pipes):
    (r, w), _ = pipes
    source = f"""
import os, xebec

class State:
    def __del__(self):
        os.write({w}, b"!")

xebec.serve(lambda batch: State(), step=lambda states: [b"x"] * len(states))
"""
    with Gateway(source, tmp_path, pass_fds=[w]) as gw:
        batch = begin(gw, b"")
        assert gw.answer().status == p.MORE
        gw.request(p.DISCARD, batch=batch)
        assert gw.answer().status == p.OK
        assert select.select([r], [], [], 20)[0]  # though no other sequence comes
        gw.stop()


def test_drain_with_an_open_stream(tmp_path):
    for source, text in ((COUNT, b"100"), (STEPS, b"100")):
        with Gateway(source, tmp_path) as gw:
            batch = begin(gw, text)
            assert gw.answer().status == p.MORE
            gw.send(p.DRAIN)
            grant(gw, batch)
            assert len(joined(collect(gw, batch)[0])) == 99
            assert gw.wait() == (0, "")


DEAF = """
import os
import threading

import xebec

def predict(batch):
    if batch[0]:
        yield b"%d" % threading.active_count()
        return
    os.write({w}, b"!")
    os.read({r}, 1)  # it does not notice that its caller has left
    yield b"late"

xebec.serve(predict, concurrency=2)
"""


def test_generators_that_do_not_notice_keep_their_threads(tmp_path, pipes):
    (r, w), (back_r, back_w) = pipes
    with Gateway(DEAF.format(r=r, w=back_w), tmp_path, pass_fds=[r, back_w]) as gw:
        for n in range(6):  # four of them wait for a thread
            batch = begin(gw, b"")
            if n < 2:
                assert os.read(back_r, 1) == b"!"
            gw.send(p.CANCEL, p.encode_cancel(batch))
            assert gw.answer().status == p.OK
        batch = begin(gw, b"x")  # it waits, too
        os.write(w, b"!!")
        assert int(joined(collect(gw, batch)[0])[0]) <= 3
        gw.stop()
        os.set_blocking(back_r, False)
        with pytest.raises(BlockingIOError):  # the four have never begun
            os.read(back_r, 1)


def test_threads_that_stay_share_one_wait(monkeypatch):
    now = [0]
    monkeypatch.setattr(_streams, "_clock", lambda: now[0])

    class Deaf:
        def join(self, timeout):
            now[0] += round(timeout * 1e9)

    generators = _streams.Generators(None, None)
    generators._threads = [Deaf() for _ in range(8)]
    generators.wait()
    assert now[0] == _streams.WAIT_NANOS


def test_many_streams_leave_nothing_behind(tmp_path):
    source = COUNT.replace('b"%d" % i', 'b"%d" % threading.active_count()').replace("import xebec", "import threading\nimport xebec")
    with Gateway(source, tmp_path, slab_bytes=1 << 24) as gw:
        for _ in range(300):
            threads = joined(collect(gw, begin(gw, b"2"))[0])
        assert int(threads[-1]) <= 4
        gw.stop()


def test_a_gateway_that_is_too_old(tmp_path):
    with Gateway(COUNT, tmp_path, serve=False, version=1) as gw:
        gw.greet()
        code, err = gw.wait()
        assert code == 1 and "version 2 of the worker protocol" in err


def call(micros, *texts):
    return struct.pack("<Q", micros) + b"".join(struct.pack("<H", len(t)) + t for t in texts)


PARAMETERS = """
import json, time, xebec

def predict(batch, parameters, calls):
    return [json.dumps([q, c.deadline and c.deadline > time.monotonic(), c.request_id, c.traceparent, c.tracestate]).encode()
            for q, c in zip(parameters, calls)]

xebec.serve(predict, parameters=True, calls=True)
"""


def test_parameters_and_calls(tmp_path):
    with Gateway(PARAMETERS, tmp_path) as gw:
        calls = [call(60_000_000, b"id-1", b"00-a-b-01", b"x=y"), call(0, b"", b"", b"")]
        gw.submit([[b"a", b"b"]], 2, parameters=[b'{"top_k": 3}', b"{}"], calls=calls)
        assert gw.outputs(gw.answer()) == [b'[{"top_k": 3}, true, "id-1", "00-a-b-01", "x=y"]', b'[{}, null, "", "", ""]']
        gw.stop()
    with Gateway(PARAMETERS, tmp_path, version=1) as gw:
        assert gw.predict([b"a"])[1] == [b'[{}, null, "", "", ""]']
        gw.stop()


def test_try_predict():
    def predict(batch):
        for i in range(int(batch[0])):
            yield float(i)

    assert xebec.try_predict(predict, ["3"], inputs="bytes[]", outputs="float32[]") == [0, 1, 2]
    with pytest.raises(TypeError, match="one at a time"):
        xebec.try_predict(predict, ["3", "4"], inputs="bytes[]", outputs="float32[]")
    with pytest.raises(xebec.BadOutput):
        xebec.try_predict(predict, ["3"], inputs="bytes[]", outputs="float32[2]")
