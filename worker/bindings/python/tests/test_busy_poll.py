"""Busy polling: both engines pass the table of package api/busypoll."""

import json
from pathlib import Path

import pytest

from xebec._link import Waits, ring_module

TABLE = json.loads((Path(__file__).resolve().parents[4] / "api/busypoll/testdata/waits.json").read_text("utf-8"))


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case["name"])
def test_table(case):
    waits, now, spins = Waits(case["bound"]), 0, []
    for wait in case["waits"]:
        until = waits.idle(now)
        assert until in (now, now + case["bound"])
        spins.append(until > now)
        assert waits.idle(now) == now  # once in a wait
        now += wait
        if waits.waiting:
            waits.arrived(now)
    assert spins == case["spins"]
    assert ring_module().spins(case["bound"], case["waits"]) == case["spins"]


def test_bound(start):
    gw = start("import xebec\nxebec.serve(lambda batch: batch)\n", env={"XEBEC_BUSY_POLL": "50us"}, serve=False)
    status, err = gw.wait()
    assert status == 1 and "XEBEC_BUSY_POLL" in err
