"""The examples of README.md."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lines import Callee

import xebec
from xebec import _protocol as p

README = (Path(__file__).resolve().parent.parent / "README.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)```", README, re.DOTALL))


def test_every_example_is_run():
    assert set(EXAMPLES) == {"digits", "try", "refuse", "feedback", "plain", "call"}
    assert README.count("```python\n") == len(EXAMPLES)


def test_the_version_is_the_packages():
    pyproject = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text("utf-8")
    assert f'version = "{xebec.__version__}"' in pyproject.splitlines()


def test_digits(start):
    gw = start(EXAMPLES["digits"], "float32[64]", "int64[]")
    r, got = gw.predict(np.ones((5, 64), "float32"))
    assert r.status == p.OK, got
    assert len(set(got.tolist())) == 1 and 0 <= got[0] < 10
    gw.stop()


def test_try(tmp_path):
    done = subprocess.run([sys.executable, "-c", EXAMPLES["try"]], capture_output=True, text=True, check=True)
    assert done.stdout == "[1. 1. 1.]\n"


def test_refuse(start):
    gw = start(EXAMPLES["refuse"])
    assert gw.predict([b"16", b"x", b"9"])[1] == [[b"4.0", b"", b"3.0"], (0, 1, 0), ["", "not a number: x", ""]]
    gw.stop()


def test_feedback(start):
    gw = start(EXAMPLES["feedback"], contexts=True)
    assert gw.predict([b""], contexts=[b"ann"])[1] == [[b"nothing yet"], (0.0,)]
    for label in ("jazz", "jazz", "folk"):
        gw.submit([[b""]], 1, ["ann"], 0, p.FEEDBACK, [f'"{label}"'])
        assert gw.answer().status == p.OK
    assert gw.predict([b"", b""], contexts=[b"ann", b"bob"])[1] == [[b"jazz", b"nothing yet"], (2 / 3, 0.0)]
    gw.request(p.ACCURACY, 0, 0, 0, *gw.grant(128))
    r = gw.answer()
    assert np.frombuffer(gw.b.map, "float64", 1, r.out_off + 64)[0] == 1 / 4
    gw.stop()


def test_call(calling):
    upper = Callee({"x": "bytes[]"}, {"y": "bytes[]"}, lambda head, values: [[v.upper() for v in values[0]]])
    gw, _ = calling(EXAMPLES["call"], {"upper": upper})
    assert gw.predict([b"a", b"b"])[1] == [b"A", b"B"]
    gw.stop()


@pytest.mark.parametrize("numpy", ["", "import sys\nsys.modules['numpy'] = None\n"], ids=["numpy", "plain"])
def test_plain(start, numpy):
    gw = start(numpy + EXAMPLES["plain"], "int32[3]", "int32[]")
    assert gw.predict([[1, 5, 2], [-1, -7, -2]])[1].tolist() == [5, -1]
    gw.stop()
