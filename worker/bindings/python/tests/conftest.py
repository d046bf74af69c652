import pytest
from gateway import Gateway
from lines import Lines

from xebec import _protocol as p
from xebec._link import ring_module


@pytest.fixture(params=["ring", "socket"])
def start(request, tmp_path):
    """Starts workers on one engine. Every test that uses it runs on both."""
    pure = request.param == "socket"
    started = []

    def start(source, *args, **kwargs):
        gw = Gateway(source, tmp_path, *args, pure=pure, **kwargs)
        started.append(gw)
        if gw.sock:
            assert gw.ring_offered is not pure
        return gw

    if not pure:
        assert ring_module(), "the C extension was not built: install a compiler and run pip install again"
    yield start
    for gw in started:
        gw.close()


@pytest.fixture
def calling(start):
    """Starts a worker with lines."""
    made = []

    def calling(source, callees, *args, limit=64, **kwargs):
        gw = start("import json, xebec\n" + source, *args, serve=False, **kwargs)
        lines = Lines(callees, limit)
        made.append((gw, lines))
        gw.accept()
        assert gw.hello.capabilities & p.CAN_LINES
        gw.ring = gw.ring_offered
        mode = p.CAN_LINES | (p.CAN_RING if gw.ring else 0) | (gw.hello.capabilities & p.CAN_STREAMS)
        gw.send(p.WELCOME, p.encode_welcome(p.Welcome(2, 0, mode, 1, "digits", "7", gw.signature)))
        lines.send(gw)
        gw.grow()
        return gw, lines

    yield calling
    for gw, lines in made:
        gw.close()
        for thread in list(lines.threads):
            thread.join()
        lines.ask.close()
