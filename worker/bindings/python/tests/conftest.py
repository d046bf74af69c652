import pytest
from gateway import Gateway

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
